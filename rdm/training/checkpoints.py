"""Checkpoint files: verified before they are used, and read without running code. Needs no Lightning."""

import zipfile
from pathlib import Path
from typing import Any

import torch

from rdm.data.tokenizer import Tokenizer
from rdm.errors import UserError, require

FORMAT = 2
"""Version of the keys and values in a checkpoint; other versions are refused."""
COST_KEY = "effort"
"""Where a checkpoint has what training cost; see :class:`~rdm.training.training_cost.TrainingCost`."""


class DamagedCheckpointError(UserError):
    """Raised for a file that is truncated, altered or no checkpoint."""


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
