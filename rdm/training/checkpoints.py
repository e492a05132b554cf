"""Checkpoint files: written atomically, verified before they are used, and read without running code."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins import TorchCheckpointIO

from rdm.data.tokenizer import Tokenizer
from rdm.errors import UserError, require
from rdm.files import atomic_write

FORMAT = 2
"""Version of the keys and values in a checkpoint; other versions are refused."""


class DamagedCheckpointError(UserError):
    """Raised for a file that is truncated, altered or no checkpoint."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Plugin by which Lightning writes and reads checkpoints: an existing file is replaced as a whole or kept."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as stream:
                torch.save(checkpoint, stream)
        except (OSError, RuntimeError) as error:
            # If a write fails within the archive, torch raises a RuntimeError with the OSError as its context.
            reason = error if isinstance(error, OSError) else error.__context__
            if not isinstance(reason, OSError):
                raise
            raise UserError(
                f"{file} cannot be written: {reason.strerror}; earlier checkpoints are unchanged; "
                "free some space, then resume with resume=auto"
            ) from error

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: Any = None) -> dict[str, Any]:
        return load_archive(Path(path))


def load_archive(file: Path) -> dict[str, Any]:
    """Return the plain data in a file written by ``torch.save``, after its checksums have been verified."""
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise DamagedCheckpointError(f"{file} is not a readable checkpoint ({type(error).__name__})") from error
    if broken:
        raise DamagedCheckpointError(f"{file} is damaged: the checksum of {broken} in it is wrong")
    return state


def read_checkpoint(file: Path) -> dict[str, Any]:
    """Return a verified checkpoint of this version's format."""
    state = load_archive(file)
    found = state.get("format") if isinstance(state, dict) else None
    require(found == FORMAT, f"{file} has checkpoint format {found}, but this version of rdm reads format {FORMAT}")
    return state


def check_fits(file: Path, state: dict[str, Any], system: Any, tokenizer: Tokenizer) -> None:
    """Raise a :class:`UserError` if a checkpoint was trained with another tokenizer or system configuration.

    Args:
        file: the checkpoint, for the message.
        state: its content.
        system: the configuration of the system as plain data.
        tokenizer: the tokenizer of the data.
    """
    trained = state["hyper_parameters"]
    require(
        trained["tokenizer"] == tokenizer.fingerprint(),
        f"ckpt: the tokenizer of {file} is not that of this data; use the data it was trained on, or init=<run>",
    )
    for key, saved, current in differences(trained["system"], system, "system"):
        # Dropout is not part of the weights, so a run may be continued with another.
        require(key.endswith("dropout"), f"ckpt: {file} was trained with {key}={saved}, but here it is {current}")


def differences(saved: Any, current: Any, path: str) -> list[tuple[str, Any, Any]]:
    """Return dotted path and both values of every leaf that differs between nested dictionaries."""
    first, second = flatten(saved, path), flatten(current, path)
    keys = sorted(first.keys() | second.keys())
    return [(key, first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)]


def flatten(node: Any, path: str) -> dict[str, Any]:
    """Return the leaves of nested dictionaries by dotted path."""
    if not isinstance(node, dict) or not node:
        return {path: node}
    return {key: value for name, child in node.items() for key, value in flatten(child, f"{path}.{name}").items()}
