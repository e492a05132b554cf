"""Checks of a whole configuration, before anything is built.

The annotations of :class:`TrainOptions`, :class:`EvaluateOptions` and :class:`GenerateOptions` are the schema of the
keys that belong to no config group. This module is imported before torch and Lightning, which take seconds.
"""

from difflib import get_close_matches
from typing import Any, Literal, get_type_hints

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from rdm.app.schema import check_types, check_value
from rdm.app.targets import get_class_of
from rdm.errors import require

Text = str | int | float | bool
"""A text on the command line, whatever type Hydra parses it as."""


class Options:
    """Keys of every script that belong to no group."""

    seed: int
    ckpt: str | None
    debug: bool


class TrainOptions(Options):
    """Keys of ``conf/train.yaml``."""

    resume: Literal["auto"] | None
    compile: bool


class DecodingOptions(Options):
    """Keys shared by ``conf/evaluate.yaml`` and ``conf/generate.yaml``."""

    average: int
    device: str
    int8: bool


class EvaluateOptions(DecodingOptions):
    """Keys of ``conf/evaluate.yaml``."""

    split: Literal["train", "valid", "test"]
    limit: int | None
    batch_size: int
    likelihood: int | Literal["all"] | None
    results: str | None
    redo: bool


class GenerateOptions(DecodingOptions):
    """Keys of ``conf/generate.yaml``."""

    text: Text | None
    sentences: int
    template: Text | None
    trace: bool
    page: str | None


OPTIONS = {"train": TrainOptions, "evaluate": EvaluateOptions, "generate": GenerateOptions}
GROUPS = {
    "train": {
        "name", "data", "model", "optimizer", "reweighting", "schedule", "decoding", "diffusion", "system", "trainer",
        "callbacks", "logger", "vocab",
    },
    "evaluate": {"decoding", "schedule", "metrics", "logger"},
    "generate": {"decoding", "schedule"},
}  # fmt: skip
"""Top-level keys of each script that are config groups or filled in by one."""
FILLED_IN = {"run_dir", "job_type", "choices", "sweep"}
"""Keys that a script fills in, or that only Hydra reads."""


def check_options(config: DictConfig, script: str) -> None:
    """Check the keys that belong to no group, and refuse top-level keys that nothing reads."""
    hints = get_type_hints(OPTIONS[script])
    known = {*hints, *GROUPS[script], *FILLED_IN}
    for key in map(str, config):
        close = get_close_matches(key, sorted(known), 1)
        suggestion = f"; did you mean {close[0]}?" if close else ""
        require(key in known, f"{key}: {script}.py has no such key{suggestion}")
    for key, hint in hints.items():
        check_value(config[key], hint, key)
    require(0 <= config.seed < 2**32, f"seed must lie between 0 and {2**32 - 1}, got {config.seed}")


def check_training(config: DictConfig) -> None:
    """Check the whole configuration of a training run."""
    check_task(config)
    check_types(config)
    check_parts(config)
    check_trainer(config.trainer)


def check_evaluation(config: DictConfig) -> None:
    """Check the configuration of an evaluation; metrics, decoding and logger are checked when they are built."""
    require(config.limit is None or config.limit >= 1, f"limit must be at least 1, got {config.limit}")
    draws = config.likelihood
    require(draws in (None, "all") or draws >= 1, f"likelihood must be all or at least 1 draw, got {draws}")


def check_generation(config: DictConfig) -> None:
    """Check the configuration of generate.py; the decoding is checked when it is built."""
    require(config.sentences >= 1, f"sentences must be at least 1, got {config.sentences}")


def check_task(config: DictConfig) -> None:
    """Refuse data of another kind than the system is for, and a diffusion that the system would not train."""
    # A system that takes any diffusion is named after it; the others have fixed names.
    diffusion = (config.get("diffusion") or {}).get("name", config.name)
    require(diffusion == config.name, f"diffusion={diffusion} is not for the system {config.name}: leave one out")
    data, system = (get_class_of(node) for node in (config.data.get("module"), config.system))
    continues, without_source = (getattr(target, "open_ended", None) for target in (system, data))
    name = config.data.name
    require(continues or not without_source, f"data={name} has no sources: add system=lm or system=ar_lm")
    message = f"data={name} has sources, but this system continues text: try data=wikitext2"
    require(without_source or not continues, message)


def check_parts(config: DictConfig) -> None:
    """Refuse a reweighting the objective does not have, and windows of text longer than the network's positions."""
    message = "decoding=as_trained is for trained models; choose another, e.g. decoding=rdm"
    require("_target_" in config.decoding, message)
    weighted = "reweighting" in config.system.get("objective", {})
    require(weighted or not config.get("reweighting"), f"reweighting: the loss of {config.name} has no weights")
    length, positions = config.data.get("length", 0), config.model.max_length
    require(length <= positions, f"model.max_length={positions} is less than data.length={length}, a window of text")


def check_trainer(trainer: DictConfig) -> None:
    """Refuse trainer options that Lightning accepts but handles badly."""
    from rdm.training.setup import computes_in_bf16, in_cluster_job

    precision, strategy = str(trainer.precision), str(trainer.strategy)
    # Pure half precision would round the probabilities of the noise.
    allowed = ("32-true", "bf16-mixed", "16-mixed")
    require(precision in allowed, f"trainer.precision: {precision} is not one of {', '.join(allowed)}")
    require(
        trainer.accelerator != "cpu" or precision == "32-true" or (precision == "bf16-mixed" and computes_in_bf16()),
        "trainer.precision: half precision is up to a hundred times slower on this CPU; use 32-true",
    )
    steps, interval = trainer.max_steps, trainer.val_check_interval
    require(steps >= -1, f"trainer.max_steps must be a number of steps, or -1 for no limit, got {steps}")
    require(interval > 0, f"trainer.val_check_interval must be above 0, got {interval}")
    # Other strategies execute the command again for every rank, which would start the sweep anew; clusters do not.
    swept = HydraConfig.get().mode is RunMode.MULTIRUN and trainer.devices != 1 and not in_cluster_job()
    require(not swept or strategy == "ddp_fork", "with -m and several devices use trainer.strategy=ddp_fork")


def chosen() -> dict[str, str]:
    """The choice for each config group, made by the user or by another choice; null groups are not included."""
    choices: dict[str, Any] = HydraConfig.get().runtime.choices
    return {group: name for group, name in choices.items() if name is not None and not group.startswith("hydra/")}
