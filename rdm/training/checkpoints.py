"""Checkpoint files: written whole or not at all, checked before they are used, and never executed."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins import TorchCheckpointIO

from rdm.data.tokenizer import Tokenizer
from rdm.errors import UserError, require
from rdm.files import atomic_write

FORMAT = 1  # of what a checkpoint holds; another one cannot be read


class Damaged(UserError):
    """A checkpoint that is not what was once written."""


class WholeFiles(TorchCheckpointIO):
    """How Lightning writes and reads checkpoints."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as stream:
                torch.save(checkpoint, stream)
        except (OSError, RuntimeError) as error:
            # In the middle of an archive torch raises an error of its own over that of the disk.
            reason = error if isinstance(error, OSError) else error.__context__
            if not isinstance(reason, OSError):
                raise
            raise UserError(
                f"{file} cannot be written: {reason.strerror}; earlier checkpoints are as they were; "
                "make room, then go on with resume=auto"
            ) from error

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: Any = None) -> dict[str, Any]:
        return load(Path(path))


def load(file: Path) -> dict[str, Any]:
    """What is in a file, as plain data, if it is undamaged: a checkpoint is an archive with a checksum a record."""
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise Damaged(f"{file} is not a readable checkpoint ({type(error).__name__})") from error
    if broken:
        raise Damaged(f"{file} is damaged: the checksum of {broken} in it is wrong")
    return state


def read(file: Path) -> dict[str, Any]:
    """A checkpoint of a run."""
    state = load(file)
    written = state.get("format") if isinstance(state, dict) else None
    require(written == FORMAT, f"{file} has checkpoint format {written}, but this version of rdm reads format {FORMAT}")
    return state


def check_fits(file: Path, state: dict[str, Any], system: Any, tokenizer: Tokenizer) -> None:
    """Refuse a checkpoint of another system (its configuration) or vocabulary than this; say what differs."""
    trained = state["hyper_parameters"]
    require(
        trained["tokenizer"] == tokenizer.fingerprint(),
        f"ckpt: the tokenizer of {file} is not that of this data; use the data it was trained on",
    )
    before, here = flatten(trained["system"]), flatten(system)
    for key in sorted(before.keys() | here.keys()):
        same = before.get(key) == here.get(key)
        require(same, f"ckpt: {file} was trained with {key}={before.get(key)}, but here it is {here.get(key)}")


def flatten(node: Any, path: str = "system") -> dict[str, Any]:
    """Leaves of nested dictionaries by dotted path."""
    if not isinstance(node, dict):
        return {path: node}
    return {key: value for name, child in node.items() for key, value in flatten(child, f"{path}.{name}").items()}
