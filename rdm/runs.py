"""A run folder: everything that is needed to decode from a trained model again, without the command that made it.

config.yaml  tokenizer.json  versions.json  checkpoints/*.ckpt  metrics.csv  finished  results.jsonl
"""

import json
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor

from rdm.config import build
from rdm.data.module import TextDataModule
from rdm.data.tokenizer import Tokenizer
from rdm.decoding.base import Decoding
from rdm.errors import UserError, require
from rdm.evaluation.results import fingerprint
from rdm.files import locked, write
from rdm.models.int8 import in_int8
from rdm.systems.base import System
from rdm.training.checkpoints import Damaged, check_fits, read

TRAINED = ("data", "model", "system", "diffusion", "reweighting", "optimizer")  # config groups that make a model
SECTIONS = ("name", "seed", "data", "vocab", "system", "optimizer", "decoding", "trainer")
"""What the configuration of a run has."""
Training = dict[str, Any]
"""What it took to train a system: overrides, parameters, steps, target tokens, seconds, machine."""
PACKAGES = ("torch", "pytorch-lightning", "hydra-core", "tokenizers", "sacrebleu")


def commit() -> str | None:
    """The git commit of the code, marked if there are changes on top; None outside a checkout."""
    here = Path(__file__).parent
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@dataclass(frozen=True)
class Run:
    """A folder with a trained model, and the checkpoint file meant if one was named."""

    folder: Path
    checkpoint: Path | None = None

    @classmethod
    def open(cls, path: str | None) -> "Run":
        """A run folder, or a checkpoint file in one."""
        if path is None:
            raise UserError(
                "ckpt: say which model, e.g. ckpt=outputs/<run> or ckpt=outputs/<run>/checkpoints/last.ckpt"
            )
        place = Path(path)
        require(place.exists(), f"ckpt: there is no {path}")
        folder = place if place.is_dir() else place.parent.parent
        require((folder / "config.yaml").is_file(), f"ckpt: {folder} is not a run folder (it has no config.yaml)")
        return cls(folder, None if place.is_dir() else place)

    def describe(self, config: DictConfig, data: TextDataModule, overrides: Iterable[str]) -> None:
        """Write what describes a run that is about to start, and the overrides it is started with."""
        self._end.unlink(missing_ok=True)
        for scrap in (self.folder / "checkpoints").glob(".*.partial"):
            scrap.unlink()  # of a process that was killed
        write(self.folder / "config.yaml", OmegaConf.to_yaml(config, resolve=True))
        data.tokenizer.save(self.folder / "tokenizer.json")
        versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
        record = {
            "commit": commit(),
            "versions": versions,
            "data": data.fingerprint(),
            "overrides": list(overrides),
        }
        write(self.folder / "versions.json", json.dumps(record, indent=2) + "\n")

    @property
    def overrides(self) -> list[str]:
        """What the run was started with."""
        record = self.folder / "versions.json"
        return json.loads(record.read_text(encoding="utf-8")).get("overrides", []) if record.is_file() else []

    @property
    def _end(self) -> Path:
        return self.folder / "finished"

    @property
    def finished(self) -> bool:
        """Whether training came to its end; one that is going on or was killed did not."""
        return self._end.exists()

    def finish(self) -> None:
        """Note that training came to its end."""
        self._end.touch()

    @property
    def config(self) -> DictConfig:
        file = self.folder / "config.yaml"
        try:
            config = OmegaConf.load(file)
        except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
            raise UserError(f"{file} cannot be read ({type(error).__name__}): name a run folder of train.py") from error
        missing = [key for key in SECTIONS if not isinstance(config, DictConfig) or config.get(key) is None]
        require(not missing, f"{file} is not the configuration of a run: it has no {', '.join(missing)}")
        assert isinstance(config, DictConfig)
        return config

    @property
    def choices(self) -> dict[str, Any]:
        """The word chosen for each config group in training."""
        return OmegaConf.to_container(self.config.get("choices", {}))  # type: ignore[return-value]

    def recipe(self) -> str:
        """A hash of all that makes the model but the seed: runs of one recipe differ by chance alone."""
        config = OmegaConf.to_container(self.config)
        assert isinstance(config, dict)
        data, trainer = dict(config["data"]["module"]), dict(config["trainer"])
        loading = data["loading"]
        data["loading"] = {name: loading[name] for name in ("max_tokens", "max_sentences")}
        trainer.pop("default_root_dir", None)  # where a run was written
        parts = {"data": data, "trainer": trainer, **{name: config[name] for name in ("system", "optimizer")}}
        return fingerprint({**parts, "ema": config["callbacks"].get("ema")})  # the other callbacks only look on

    def checkpoints(self, average: int = 1) -> list[Path]:
        """The checkpoint that was named, or else the one trained longest; with ``average``, so many that end there."""
        require(average >= 1, f"average must be at least 1, got {average}")
        numbered = sorted((self.folder / "checkpoints").glob("step_*.ckpt"))
        if average > 1:
            until = self.checkpoint or (numbered[-1] if numbered else None)
            require(until is None or until.name != "last.ckpt", "average: name a numbered checkpoint or the run folder")
            numbered = [file for file in numbered if until and file.name <= until.name]
            found = f"average={average}, but {self.folder} has {len(numbered)} numbered checkpoints to average"
            require(len(numbered) >= average, found)
            return numbered[-average:]
        newest = self._newest_first()
        require(len(newest) > 0, f"ckpt: {self.folder} has no checkpoint yet")
        return newest[:1]

    def _newest_first(self) -> list[Path]:
        """The checkpoint that was named, or else all there are."""
        if self.checkpoint is not None:
            return [self.checkpoint]
        folder = self.folder / "checkpoints"
        between = [last for last in folder.glob("last.ckpt") if not last.is_symlink()]
        return between + sorted(folder.glob("step_*.ckpt"), reverse=True)

    @contextmanager
    def taken(self, resume: bool) -> Iterator[None]:
        """Work in this folder: alone, and where another run is, only to resume it."""
        if getattr(rank_zero_only, "rank", 0) > 0:  # one of several processes that were started apart: the first has it
            yield
            return
        with locked(self.folder):
            require(
                resume or not (self.folder / "config.yaml").exists(),
                f"{self.folder} holds a run already; go on with it by resume=auto, or name another hydra.run.dir",
            )
            yield

    def to_resume(self, config: DictConfig, data: TextDataModule, elsewhere: bool = False) -> Path | None:
        """The newest checkpoint that is whole, if there is any to go on from with this configuration and data.

        ``elsewhere``, in a folder of its own, a run needs a step to do: it would have no checkpoint otherwise.
        """
        found = self._newest_first()
        for file in found:
            try:
                state = read(file)
            except Damaged as error:
                if self.checkpoint is not None:
                    raise
                rank_zero_only(print)(f"warning: {error}; going on from the one before", file=sys.stderr)
                continue
            check_fits(file, state, OmegaConf.to_container(config.system, resolve=True), data.tokenizer)
            averaged, averages = "current_model_state" in state, bool(config.callbacks.get("ema"))
            require(averages or not averaged, f"ckpt: {file} was trained with callbacks.ema; go on with it")
            step, end = state["global_step"], config.trainer.max_steps
            ended = elsewhere and step >= end > -1
            require(not ended, f"ckpt: {file} is of step {step}; say a larger trainer.max_steps than that")
            return file
        require(len(found) == 0, f"ckpt: no checkpoint of {self.folder} is whole; remove them to start anew")
        return None

    def data(self) -> TextDataModule:
        """The run's data with the run's own tokenizer."""
        return load_data(self.folder, stamped(self.folder / "config.yaml", self.folder / "tokenizer.json"))

    def system(self, average: int = 1, device: str = "auto") -> tuple[System, Training]:
        """The trained system (averaged weights, ready to decode) and what it took."""
        files = self.checkpoints(average)
        system, training = load_system(self.folder, stamped(*files))
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            return system.to(device), training
        except (RuntimeError, AssertionError, TypeError) as error:
            raise UserError(f"device={device} cannot be used here: {str(error).splitlines()[0]}") from error

    def decoding(self, overlay: DictConfig) -> Decoding:
        """The strategy in ``overlay``; what it leaves open (null) is as the run was configured."""
        config = self.config
        given = OmegaConf.to_container(overlay, resolve=False)
        assert isinstance(given, dict)
        if "_target_" in given:
            config.decoding = given
        else:
            OmegaConf.set_struct(config, False)
            config.decoding.update({key: value for key, value in given.items() if value is not None})
        try:
            return build(config.decoding, "decoding", Decoding)
        except InterpolationKeyError as error:  # a strategy may be what the run's diffusion says it is
            raise UserError(f"decoding={config.decoding.name} is not for a model of system {config.name}") from error


@dataclass(frozen=True)
class Loaded:
    """A run with everything that is needed to decode from it."""

    run: Run
    system: System
    training: Training
    decoding: Decoding
    data: TextDataModule
    int8: bool

    def metrics(self, named: DictConfig | None) -> DictConfig:
        """The metrics that were named, or else those of the data."""
        metrics = named or self.run.config.data.metrics
        require(any(metrics.values()), "metrics: name at least one")
        return metrics

    def describe(self) -> dict[str, Any]:
        """What a result row says of the model and how it is decoded."""
        config = self.run.config
        return {
            "run": str(self.run.folder),
            "recipe": self.run.recipe(),
            "train_seed": config.seed,
            "choices": {group: word for group, word in self.run.choices.items() if group.split("/")[0] in TRAINED},
            "data": config.data.name,
            "system": config.name,
            "checkpoint_step": self.training["steps"],
            "int8": self.int8,
            "strategy": self.decoding.name,
            "steps": self.decoding.steps,
            "candidates": self.decoding.candidates,
            "decoding": {
                key: value for key, value in self.decoding.describe().items() if key not in ("name", "steps")
            },
        }


def as_before(arguments: list[str]) -> list[str]:
    """With ``ckpt=<run>``, what that run was started with before what is said now: the latter wins."""
    named = [Path(text.removeprefix("ckpt=").strip("'\"")) for text in arguments if text.startswith("ckpt=")]
    for place in named:
        earlier = Run(place if place.is_dir() else place.parent.parent).overrides
        if earlier:
            # Words about Hydra itself could name code that is run; a run that was started here has none on record.
            aside = ("ckpt=", "resume=", "hydra")
            kept = [text for text in earlier if not text.lstrip("+~").startswith(aside) and text not in arguments]
            return [*kept, *arguments]
    return arguments


def load(config: DictConfig) -> Loaded:
    """The run, weights and strategy that the options of evaluate.py and generate.py ask for."""
    run = Run.open(config.ckpt)
    decoding = run.decoding(config.decoding)
    system, training = run.system(config.average, config.device)
    system.check(decoding)
    if config.int8:
        device = next(system.parameters()).device.type
        require(device == "cpu", f"int8=true computes on a CPU only, and this is {device}: add device=cpu")
        system = in_int8(system)
    return Loaded(run, system, training, decoding, run.data(), config.int8)


def stamped(*files: Path) -> tuple[tuple[Path, int], ...]:
    """Files with the time of their last change: what is cached under them is read again when they change."""
    for file in files:
        require(file.is_file(), f"there is no {file}: the run is not complete")
    return tuple((file, file.stat().st_mtime_ns) for file in files)


@lru_cache(maxsize=1)
def load_data(folder: Path, files: tuple[tuple[Path, int], ...]) -> TextDataModule:
    """Cached like :func:`load_system`."""
    config = Run(folder).config
    data = build(config.data.module, "data.module", TextDataModule)
    data.load_tokenizer(folder / "tokenizer.json")
    made, trained = data.vocab.size, config.vocab.size
    require(made == trained, f"{folder}: its tokenizer has {made} ids, but the model was made for {trained}")
    return data


@lru_cache(maxsize=1)
def load_system(folder: Path, files: tuple[tuple[Path, int], ...]) -> tuple[System, Training]:
    """Cached, so that a sweep over decoding options in one process loads its checkpoint once."""
    config, tokenizer = Run(folder).config, Tokenizer.load(folder / "tokenizer.json")
    system = build(config.system, "system", System)
    states = [read(file) for file, _ in files]
    for (file, _), state in zip(files, states, strict=True):
        check_fits(file, state, OmegaConf.to_container(config.system, resolve=True), tokenizer)
    weights = average_weights([state["state_dict"] for state in states])
    try:
        system.load_state_dict({name.removeprefix("system."): value for name, value in weights.items()})
    except RuntimeError as error:
        raise UserError(
            f"{files[-1][0]} does not fit the configuration beside it: {str(error).splitlines()[-1].strip()}"
        ) from error
    training = {
        "overrides": Run(folder).overrides,
        "parameters": sum(parameter.numel() for parameter in system.parameters()),
        "steps": int(states[-1]["global_step"]),
        **states[-1].get("effort", {}),
    }
    return system.eval(), training


def average_weights(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of floating-point weights; everything else (ids, flags) as in the last."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if last.is_floating_point() else last
        for name, last in states[-1].items()
    }
