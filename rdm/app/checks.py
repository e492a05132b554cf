"""Checks of a whole configuration, before anything is built.

The annotations of :class:`TrainOptions`, :class:`EvaluateOptions` and :class:`GenerateOptions` are the schema of the
keys that belong to no config group. This module is imported before torch and Lightning, which take seconds.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_type_hints

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from rdm.app.choices import did_you_mean, groups_of
from rdm.app.run_folder import RunFolder
from rdm.app.schema import check_types, check_value
from rdm.app.targets import build, get_class_of
from rdm.app.trust import trusted_packages
from rdm.app.unused_keys import ROOTS, below, unused_keys
from rdm.errors import UserError, require
from rdm.training.best import ValidationMetric  # imports no torch

Text = str | int | float | bool
"""A text on the command line, whatever type Hydra parses it as."""


class Options:
    """Keys of every script that belong to no group."""

    seed: int
    ckpt: str | None
    trust: str | list[str] | None
    debug: bool


class TrainOptions(Options):
    """Keys of ``conf/train.yaml``."""

    init: str | None
    best: ValidationMetric | None
    patience: int | None
    resume: Literal["auto"] | None
    compile: bool


class PlanOptions(TrainOptions):
    """Keys of ``conf/plan.yaml``; ``rdm.plan`` checks their values."""

    vocabulary: Any
    length: Any
    examples: Any


class DecodingOptions(Options):
    """Keys shared by ``conf/evaluate.yaml`` and ``conf/generate.yaml``."""

    best: bool
    average: int
    batch_size: int
    rescore: str | None
    device: str
    int8: bool


class EvaluateOptions(DecodingOptions):
    """Keys of ``conf/evaluate.yaml``."""

    split: Literal["train", "valid", "test"]
    limit: int | None
    likelihood: int | Literal["all"] | None
    results: str | None
    redo: bool


class GenerateOptions(DecodingOptions):
    """Keys of ``conf/generate.yaml``."""

    text: Text | None
    input: str | None
    output: str | None
    targets: str | None
    interactive: bool
    distil: str | None
    sentences: int
    nbest: int
    score: bool
    template: Text | None
    trace: bool
    page: str | None


STDIN = "text=- (standard input)"
ONE_TEXT = "text=..."
TEST = "test sentences"
GENERATION_USES = {
    "output": {STDIN, "input"},
    "targets": {"input"},
    "score": {STDIN, "input"},
    "nbest": {ONE_TEXT, STDIN, "input", "interactive", TEST},
    "sentences": {TEST},
    "trace": {ONE_TEXT, STDIN, TEST},
    "template": {ONE_TEXT, STDIN, TEST},
    "data": {TEST, "distil"},
}
"""Keys of generate.py that have an effect only in some of its uses."""
OPTIONS = {"train": TrainOptions, "plan": PlanOptions, "evaluate": EvaluateOptions, "generate": GenerateOptions}
GROUPS = {
    "train": {
        "name", "data", "model", "optimizer", "reweighting", "schedule", "ranking", "transition_times", "selection",
        "decoding", "diffusion", "system", "trainer", "callbacks", "logger", "vocab", "warm_start",
    },
    "evaluate": {"data", "decoding", "schedule", "ranking", "transition_times", "selection", "metrics", "logger"},
    "generate": {"data", "decoding", "schedule", "ranking", "transition_times", "selection"},
}  # fmt: skip
"""Top-level keys of each script that are config groups or filled in by one."""
GROUPS["plan"] = GROUPS["train"] | {"hardware"}
FILLED_IN = {"run_dir", "job_type", "choices", "sweep"}
"""Keys that a script fills in, or that only Hydra reads."""
SWEEP = ("sweep.evaluate", "sweep.folder", "sweep.generate", "sweep.task", "sweep.train")
READ = {
    "train": {*ROOTS, *SWEEP, "warm_start"},
    "evaluate": {*GROUPS["evaluate"], *SWEEP, "job_type"},  # checked against the configuration of the run
    "generate": {*GROUPS["generate"], *SWEEP},
    "plan": {*ROOTS, *SWEEP, "hardware", "warm_start"},
}
"""What the code of each script reads besides its options; see :mod:`rdm.app.unused_keys`."""
SET_BY_SCRIPT = {
    "train": ("choices", "vocab"),
    "evaluate": ("choices", "run_dir"),
    "generate": (),
    "plan": ("choices", "vocab"),
}
"""Keys whose value the script replaces."""
SEQ2SEQ_DENOISER = "rdm.models.denoiser.Seq2SeqDenoiser"
"""The denoiser of ``system=diffusion``, unless the diffusion has one of its own."""
DIFFUSION_PARTS = {"target_length": "Untold", "length_head": "LengthHead", "steps": "UniformSteps"}
"""Parts of a diffusion that not every system uses, each with the class that changes nothing."""
ADVICE = {"data.examples": "; data.limit=<number> trains on the first examples"}
"""What to use instead of a key that is easily mistaken."""


def check_options(config: DictConfig, script: str) -> None:
    """Check the keys that belong to no group, and refuse top-level keys that nothing reads."""
    hints = get_type_hints(OPTIONS[script])
    known = {*hints, *GROUPS[script], *FILLED_IN}
    for key in map(str, config):
        require(key in known, f"{key}: there is no such key{did_you_mean(key, {*known, *groups_of(script)})}")
    for key, hint in hints.items():
        check_value(config[key], hint, key)
    require(0 <= config.seed < 2**32, f"seed must lie between 0 and {2**32 - 1}, got {config.seed}")


def check_overrides(config: DictConfig, overrides: Iterable[str], script: str) -> None:
    """Refuse values set on the command line that nothing reads, or that the script replaces."""
    unused = unused_keys(config, {*READ[script], *get_type_hints(OPTIONS[script])})
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        require(not below(key, SET_BY_SCRIPT[script]), f"{key} cannot be set: the script sets it")
        fixed = script in ("evaluate", "generate") and key.startswith("data/")
        require(not fixed, f"{key} has no effect on a trained model, which has its own tokenizer: leave it out")
        # A choice of a group that has no effect is explained by check_task and check_parts.
        if "." in key and any(below(each, [key]) for each in unused):
            parent, _, name = key.rpartition(".")
            used = {str(each) for each in OmegaConf.select(config, parent) or ()} - {name}
            advice = ADVICE.get(key) or did_you_mean(name, used)
            raise UserError(f"{key} has no effect: this configuration does not read it{advice}")


def check_run(config: DictConfig) -> None:
    """Check that ``ckpt`` is a run with a checkpoint."""
    run = RunFolder.open(config.ckpt, trust=trusted_packages(config.trust))
    assert run.config
    run.checkpoints(config.average)


def check_training_files(config: DictConfig) -> None:
    """Check that the run to continue and the files of the training text exist."""
    from rdm.data.corpus import Corpus, Files

    if RunFolder(Path(config.run_dir)).finished and HydraConfig.get().mode is RunMode.MULTIRUN:
        return  # not trained again
    typed = {override.partition("=")[0] for override in HydraConfig.get().overrides.task}
    both = config.data.get("hold_out") and config.data.get("valid") and {"data.valid", "+data.valid"} & typed
    require(not both, f"data.valid={config.data.get('valid')} and data.hold_out cannot be combined: leave one out")
    require(config.trust is None or config.ckpt is not None, "trust has no effect without ckpt: leave it out")
    if config.ckpt is not None:
        other = RunFolder.open(config.ckpt, trust=trusted_packages(config.trust))
        message = f"ckpt: {other.origin} is an exported model without training state; start a new run with init="
        require(not other.exported, message)
    if config.data.get("corpus") is not None:
        corpus = build(config.data.corpus, "data.corpus", Corpus)
        if isinstance(corpus, Files):
            corpus.files("train")


CHECK_FILES = {"train": check_training_files, "evaluate": check_run, "generate": check_run}
"""What each script checks before torch and Lightning are imported."""


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
    for key in ("sentences", "nbest", "batch_size"):
        require(config[key] >= 1, f"{key} must be at least 1, got {config[key]}")
    use = generation_use(config)
    defaults: tuple[Any, ...] = (None, False, {})
    given = {str(key) for key, value in config.items() if value not in defaults}
    given -= {key for key in ("sentences", "nbest") if config[key] == 1}
    for key in sorted(given & GENERATION_USES.keys()):
        others = ", ".join(sorted(GENERATION_USES[key]))
        require(use in GENERATION_USES[key], f"{key} has no effect with {use}; it is for {others}")
    for key in sorted(given & {"nbest", "trace", "template", "rescore", "decoding"}):
        require(not config.score, f"{key} has no effect with score=true, which decodes nothing")
    for key in sorted(given & {"output", "score"}):
        require(not config.trace and config.template is None, f"{key} cannot be combined with trace or template")
    for key in sorted(given & {"nbest", "rescore"}):
        require(config.template is None, f"{key} has no effect with a template, for which one text is decoded")
    require(config.targets is None or config.score, "targets has no effect without score=true")
    require(config.page is None or config.trace, "page has no effect without trace=true")
    plain = config.output is not None and not config.output.endswith(".jsonl")
    require(config.nbest == 1 or not plain, "nbest: a text file has one output per line; use output=<file>.jsonl")


def generation_use(config: DictConfig) -> str:
    """The mode of generate.py: one of :data:`GENERATION_USES`."""
    keys = [key for key in ("text", "input", "distil") if config[key] is not None]
    keys += ["interactive"] if config.interactive else []
    require(len(keys) <= 1, f"{' and '.join(keys)} cannot be combined: choose one")
    if not keys:
        return TEST
    return {"text": STDIN if config.text == "-" else ONE_TEXT}.get(keys[0], keys[0])


def check_task(config: DictConfig) -> None:
    """Refuse data of another task than the system's, and a diffusion that the system does not use."""
    require("module" in config.data, "data=as_trained is for trained models; choose another, e.g. data=toy_translation")
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
    """Refuse parts of the diffusion that are not used, and windows of text longer than the network's positions."""
    message = "decoding=as_trained is for trained models; choose another, e.g. decoding=rdm"
    require("_target_" in config.decoding, message)
    weighted = "reweighting" in config.system.get("objective", {})
    require(weighted or not config.get("reweighting"), f"reweighting: the loss of {config.name} has no weights")
    denoiser = OmegaConf.select(config, "diffusion.denoiser", default=SEQ2SEQ_DENOISER)
    seq2seq = denoiser == SEQ2SEQ_DENOISER or not getattr(get_class_of(config.system), "open_ended", False)
    require(seq2seq, f"diffusion={config.name} has a denoiser with a source: it is not for system=lm")
    unused = unused_keys(config, READ["train"])
    for part, default in DIFFUSION_PARTS.items():
        target = OmegaConf.select(config, f"diffusion.{part}._target_", default=default)
        effective = f"diffusion.{part}._target_" not in unused or target.endswith(f".{default}")
        require(effective, f"diffusion/{part} has no effect: this system or diffusion/pairing does not use it")
    length, positions = config.data.get("length", 0), config.model.max_length
    require(length <= positions, f"model.max_length={positions} is less than data.length={length}, a window of text")


def check_trainer(trainer: DictConfig) -> None:
    """Refuse trainer options that Lightning accepts but handles badly."""
    from rdm.training.setup import computes_in_bf16, in_cluster_job, torchrun_processes

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
    processes, devices = torchrun_processes(), trainer.devices
    require(
        processes is None or devices in (processes, -1, "auto"),
        f"torchrun starts {processes} processes per machine, but trainer.devices={devices}: give both the same number",
    )
    # Other strategies execute the command again for every rank, which would restart the sweep; clusters do not.
    swept = HydraConfig.get().mode is RunMode.MULTIRUN and trainer.devices != 1 and not in_cluster_job()
    require(not swept or strategy == "ddp_fork", "with -m and several devices use trainer.strategy=ddp_fork")


def chosen() -> dict[str, str]:
    """The choice for each config group, made by the user or by another choice, without null and ``as_trained``."""
    choices: dict[str, Any] = HydraConfig.get().runtime.choices
    unchosen = (None, "as_trained")
    return {group: name for group, name in choices.items() if name not in unchosen and not group.startswith("hydra/")}


def overridden_keys(section: str) -> list[str]:
    """The dotted keys below ``section`` that the user gave on the command line."""
    keys = [override.split("=")[0].lstrip("+") for override in HydraConfig.get().overrides.task]
    return [key.removeprefix(f"{section}.") for key in keys if key.startswith(f"{section}.")]
