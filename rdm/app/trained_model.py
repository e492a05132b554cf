"""A trained model, loaded from its run folder and ready to decode."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError
from torch import Tensor

from rdm.app.run_folder import RunFolder
from rdm.app.targets import build
from rdm.data.codec import Codec
from rdm.data.module import TextDataModule
from rdm.decoding.base import Decoding
from rdm.errors import UserError, require
from rdm.models.int8 import in_int8
from rdm.systems.base import System
from rdm.training.checkpoints import check_fits, read_checkpoint
from rdm.training.training_cost import CHECKPOINT_KEY

TRAINING_GROUPS = ("data", "model", "system", "diffusion", "reweighting", "optimizer")
"""Config groups that make a model."""
Stamped = tuple[tuple[Path, int], ...]
"""Files with the time of their last modification."""


@dataclass(frozen=True)
class TrainedModel:
    """A system with its weights, its codec, and the run it comes from.

    Attributes:
        cost: overrides, parameters, steps, target tokens, seconds and machine of the training.
    """

    run: RunFolder
    system: System
    codec: Codec
    cost: dict[str, Any]
    int8: bool

    @classmethod
    def load(cls, ckpt: str | None, average: int = 1, device: str = "auto", int8: bool = False) -> "TrainedModel":
        """Load EMA weights (averaged over checkpoints if ``average > 1``) onto ``device``."""
        run = RunFolder.open(ckpt)
        system, cost = load_system(run.folder, stamped(*run.checkpoints(average)))
        files = (run.folder / name for name in ("config.yaml", "codec.json", "tokenizer.json"))
        codec = load_codec(run.folder, stamped(*files))
        system = move(system, device)
        if int8:
            kind = next(system.parameters()).device.type
            require(kind == "cpu", f"int8=true works on a CPU only, and the device is {kind}: add device=cpu")
            system = in_int8(system)
        return cls(run, system, codec, cost, int8)

    def decoding(self, overrides: DictConfig) -> Decoding:
        """A decoding strategy for this model: the named one, or the trained one with ``overrides``."""
        config = self.run.config
        given = OmegaConf.to_container(overrides, resolve=False)
        assert isinstance(given, dict)
        trained = OmegaConf.to_container(config.decoding, resolve=False)
        assert isinstance(trained, dict)
        config.decoding = given if "_target_" in given else merged(trained, given)
        try:
            decoding = build(config.decoding, "decoding", Decoding)
        except InterpolationKeyError as error:  # decoding=vanilla refers to the run's diffusion
            raise UserError(f"decoding={config.decoding.name} is not for a model of system {config.name}") from error
        self.system.check(decoding)
        return decoding

    def data(self) -> TextDataModule:
        """The data the model was trained on, with the model's codec."""
        return load_data(self.run.folder, stamped(self.run.folder / "config.yaml"), self.codec)

    def describe(self) -> dict[str, Any]:
        """The settings of a result row that concern the model."""
        config = self.run.config
        choices = {group: name for group, name in self.run.choices.items() if group.split("/")[0] in TRAINING_GROUPS}
        return {
            "run": str(self.run.folder),
            "recipe": self.run.recipe(),
            "train_seed": config.seed,
            "choices": choices,
            "data": config.data.name,
            "system": config.name,
            "checkpoint_step": self.cost["steps"],
            "int8": self.int8,
        }


def merged(trained: dict[Any, Any], given: dict[Any, Any]) -> dict[Any, Any]:
    """``trained`` with the values of ``given``; a component of another class replaces the trained one as a whole."""
    result = dict(trained)
    for key, value in given.items():
        before = trained.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            same_class = value.get("_target_", before.get("_target_")) == before.get("_target_")
            value = merged(before, value) if same_class else value
        result[key] = value
    return result


def move(system: System, device: str) -> System:
    """``system`` on ``device``; ``auto`` is a GPU if there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return system.to(device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"device={device} cannot be used here: {str(error).splitlines()[0]}") from error


def stamped(*files: Path) -> Stamped:
    """Cache key of files: what is cached under it is read again when a file changes."""
    for file in files:
        require(file.is_file(), f"{file} does not exist: the run is not complete")
    return tuple((file, file.stat().st_mtime_ns) for file in files)


# Cached, so that a sweep over decoding options in one process loads its model once.


@lru_cache(maxsize=1)
def load_codec(folder: Path, files: Stamped) -> Codec:
    codec, trained = Codec.load(folder), RunFolder(folder).config.vocab.size
    size = codec.vocab.size
    require(size == trained, f"{folder}: its tokenizer has {size} ids, but the model was made for {trained}")
    return codec


@lru_cache(maxsize=1)
def load_data(folder: Path, files: Stamped, codec: Codec) -> TextDataModule:
    data = build(RunFolder(folder).config.data.module, "data.module", TextDataModule)
    data.use_codec(codec)
    return data


@lru_cache(maxsize=1)
def load_system(folder: Path, files: Stamped) -> tuple[System, dict[str, Any]]:
    run = RunFolder(folder)
    states = [read_checkpoint(file) for file, _ in files]  # first: one of an earlier version may have other classes
    config, codec = run.config, Codec.load(folder)
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
        **states[-1].get(CHECKPOINT_KEY, {}),
    }
    return system.eval(), cost


def average_weights(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of floating-point tensors; everything else (ids, flags) is taken from the last state."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if last.is_floating_point() else last
        for name, last in states[-1].items()
    }
