"""Reading a trained model from its run folder, or from a folder that was exported."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from rdm.app.portable import missing_paths
from rdm.app.run_folder import RunFolder
from rdm.app.targets import build
from rdm.data.codec import Codec
from rdm.data.module import TextDataModule
from rdm.errors import UserError, require
from rdm.systems.base import System
from rdm.training.checkpoints import COST_KEY, check_fits
from rdm.training.weights import read_state

Stamped = tuple[tuple[Path, int], ...]
"""Files with the time of their last modification."""


def move(system: System, device: str) -> System:
    """``system`` on ``device``; ``auto`` uses a GPU if available."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return system.to(device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"device={device} cannot be used here: {str(error).splitlines()[0]}") from error


def stamped(*files: Path) -> Stamped:
    """Cache key of files that changes whenever a file changes."""
    for file in files:
        require(file.is_file(), f"{file} does not exist: the run is not complete")
    return tuple((file, file.stat().st_mtime_ns) for file in files)


# Cached, so that a sweep over decoding options in one process loads its model (and its teacher) once.


@lru_cache(maxsize=2)
def load_codec(run: RunFolder, files: Stamped) -> Codec:
    codec, trained = Codec.load(run.folder), run.config.vocab.size
    size = codec.vocab.size
    require(size == trained, f"{run.folder}: its tokenizer has {size} ids, but the model was made for {trained}")
    return codec


@lru_cache(maxsize=1)
def load_data(run: RunFolder, files: Stamped, changed: str | None, codec: Codec) -> TextDataModule:
    """Build the data of a run, or of a ``changed`` configuration given as YAML."""
    config = run.config if changed is None else OmegaConf.create(changed)
    missing = missing_paths(config.data)
    message = f"the exported model does not know where its data are: add {'=<folder> '.join(missing)}=<folder>"
    require(not missing or not run.exported, message)
    data = build(config.data.module, "data.module", TextDataModule)
    data.use_codec(codec)
    return data


@lru_cache(maxsize=2)
def load_system(run: RunFolder, files: Stamped, configuration: Stamped) -> tuple[System, dict[str, Any]]:
    """The system with the mean of the weights in ``files``, and what its training cost."""
    states = [read_state(file) for file, _ in files]  # first: one of an earlier version may have other classes
    config, codec = run.config, Codec.load(run.folder)
    system = build(config.system, "system", System)
    for (file, _), state in zip(files, states, strict=True):
        check_fits(file, state, OmegaConf.to_container(config.system, resolve=True), codec.tokenizer)
    weights = average_weights([state["state_dict"] for state in states])
    try:
        system.load_state_dict({name.removeprefix("system."): value for name, value in weights.items()})
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(f"{files[-1][0]} does not fit the configuration beside it: {reason}") from error
    cost = {
        "overrides": run.overrides,
        "parameters": sum(parameter.numel() for parameter in system.parameters()),
        "steps": int(states[-1]["global_step"]),
        **states[-1].get(COST_KEY, {}),
    }
    return system.eval(), cost


def average_weights(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of floating-point tensors; everything else (ids, flags) is taken from the last state."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if last.is_floating_point() else last
        for name, last in states[-1].items()
    }
