"""Weights of a trained model as one safetensors file, with what a checkpoint says about them in its metadata.

The file holds tensors and text only; nothing in it can be executed. Tensors that are tied in the model are stored once.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rdm.errors import require
from rdm.training.checkpoints import COST_KEY, DamagedCheckpointError, read_checkpoint

WEIGHTS_FORMAT = 1
"""Version of the metadata; other versions are refused."""
STATE_KEYS = ("global_step", "hyper_parameters", COST_KEY)
"""Parts of a checkpoint that are kept in the metadata, as JSON."""


def read_state(file: Path) -> dict[str, Any]:
    """Return the content of a checkpoint, or the same kind of content of exported weights."""
    return read_weights(file) if file.suffix == ".safetensors" else read_checkpoint(file)


def write_weights(file: Path, state: dict[str, Any]) -> None:
    """Write ``state["state_dict"]`` as safetensors, and :data:`STATE_KEYS` of ``state`` as its metadata."""
    stored, tied = split_tied(state["state_dict"])
    kept = {"format": WEIGHTS_FORMAT, "tied": tied, **{key: state[key] for key in STATE_KEYS}}
    file.touch()
    mode = file.stat().st_mode
    # Libraries that read safetensors look for the key "format", whose value names the framework.
    save_file(stored, file, metadata={"format": "pt", "rdm": json.dumps(kept)})
    file.chmod(mode)  # the library makes files that only their owner can read


def read_weights(file: Path) -> dict[str, Any]:
    """Return what :func:`write_weights` wrote, tied tensors under each of their names."""
    try:
        with safe_open(file, framework="pt") as opened:
            kept = json.loads((opened.metadata() or {}).get("rdm", "null"))
            weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # not iterable
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{file} is not a readable safetensors file ({type(error).__name__})") from error
    found = kept.get("format") if isinstance(kept, dict) else None
    message = f"{file} has weights of format {found}, but this version of rdm reads format {WEIGHTS_FORMAT}"
    require(found == WEIGHTS_FORMAT, message)
    if not is_state(kept, weights):
        raise DamagedCheckpointError(f"{file} is damaged: its metadata do not describe a model; export it again")
    state = {key: kept[key] for key in STATE_KEYS}
    return {**state, "state_dict": {**weights, **{alias: weights[name] for alias, name in kept["tied"].items()}}}


def is_state(kept: dict[str, Any], weights: dict[str, Tensor]) -> bool:
    """Whether metadata have all entries of a checkpoint in the right form."""
    trained, tied, step, effort = (kept.get(key) for key in ("hyper_parameters", "tied", "global_step", COST_KEY))
    if not (isinstance(trained, dict) and isinstance(tied, dict) and type(step) is int and isinstance(effort, dict)):
        return False
    return {"system", "tokenizer"} <= trained.keys() and all(name in weights for name in tied.values())


def split_tied(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return each tensor under its first name, and the names of that tensor by its other names.

    >>> weight = torch.ones(2)
    >>> stored, tied = split_tied({"embedding": weight, "output": weight, "bias": torch.ones(2)})
    >>> list(stored), tied
    (['embedding', 'bias'], {'output': 'embedding'})
    """
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, name if tensor.numel() == 0 else "")
        if place in first:
            tied[name] = first[place]
        else:
            first[place] = name
            # A copy: safetensors refuses tensors that are views of the same memory.
            stored[name] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    return stored, tied
