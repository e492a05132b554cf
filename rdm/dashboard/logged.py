"""What the runs of a sweep logged to W&B, read from their folders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rdm.app.run_folder import RunFolder
from rdm.app.training_runs import WITHOUT_EFFECT, find_training_runs, read_training_runs
from rdm.errors import require
from rdm.evaluation.curves import drawn_metrics
from rdm.evaluation.results import Row, read_results
from rdm.evaluation.tables import metrics_of

CURVES = ("train/loss", "val/loss", "val/bleu")
"""Curves of runs that kept no ``metrics.csv``."""
TRAINED_METRICS = ("val/bleu", "val/loss")
"""Metrics by which trainings are compared, most wanted first."""
EVALUATION_SETTINGS = ("system", "strategy")
"""Settings of a result row that are compared besides the ablated choices."""


@dataclass(frozen=True)
class LoggedTraining:
    """A training run in W&B.

    Args:
        pages: decoding pages the run logged, as paths among the files of the W&B run, in the order of training.
        has_samples: whether it logged tables of samples.
    """

    id: str
    name: str
    pages: list[str]
    has_samples: bool


@dataclass(frozen=True)
class LoggedSweep:
    """The W&B runs of a sweep and the keys they logged.

    Args:
        evaluations: W&B ids of the evaluations.
        curves: metrics logged during training.
        ablated: config keys of the training runs whose values differ, e.g. ``choices.reweighting``.
        compared: config keys of the evaluations whose values differ.
        score: main metric of the evaluations, e.g. ``test/sacrebleu``; None without evaluations.
        iterates: whether evaluations record a number of iterations.
    """

    name: str
    trainings: list[LoggedTraining]
    evaluations: list[str]
    curves: list[str]
    ablated: list[str]
    compared: list[str]
    score: str | None
    iterates: bool

    @property
    def run_ids(self) -> list[str]:
        """W&B ids of all runs."""
        return [*(run.id for run in self.trainings), *self.evaluations]

    @property
    def trained_metric(self) -> str | None:
        """The metric by which trainings are compared; None if they logged none of :data:`TRAINED_METRICS`."""
        return next((name for name in TRAINED_METRICS if name in self.curves), None)


def read_sweep(folders: Sequence[Path]) -> LoggedSweep:
    """Read which W&B runs belong to run or sweep folders, and what they logged."""
    runs = [file.parent for folder in folders for file in sorted(folder.rglob("wandb_id"))]
    trainings = [logged_training(run) for run in runs]
    evaluations = dict(entry for folder in folders for entry in evaluation_ids(folder))
    places = ", ".join(map(str, folders))
    require(bool(trainings or evaluations), f"{places}: no W&B runs; add logger=wandb to train.py and evaluate.py")
    rows = [row for row in read_results(folders) if row.get("evaluation") in evaluations]
    split = "test" if not rows or any(row["split"] == "test" for row in rows) else rows[0]["split"]
    rows = [row for row in rows if row["split"] == split]
    with_metrics = [folder for folder in find_training_runs(folders) if folder in runs]
    curves = drawn_metrics(read_training_runs(with_metrics)) if with_metrics else list(CURVES if runs else ())
    return LoggedSweep(
        name=folders[0].resolve().name,
        trainings=trainings,
        evaluations=list(evaluations.values()),
        curves=curves,
        ablated=differing_keys([RunFolder(run) for run in runs]),
        compared=compared_keys(rows),
        score=f"{split}/{metrics_of(rows)[0]}" if rows else None,
        iterates=any(row.get("steps") is not None for row in rows),
    )


def logged_training(run: Path) -> LoggedTraining:
    """The W&B run of a training."""
    files = [file for attempt in wandb_folders(run) for file in (attempt / "files").rglob("media/*/*")]
    pages = [file for file in files if file.parent.name == "html" and file.name.startswith("decoding_")]
    return LoggedTraining(
        id=(run / "wandb_id").read_text(encoding="utf-8").strip(),
        name=str(RunFolder(run).choices.get("name", run.name)),
        pages=[f"media/html/{page.name}" for page in sorted(pages, key=logged_step)],
        has_samples=any(file.parent.name == "table" and file.name.startswith("samples_") for file in files),
    )


def logged_step(file: Path) -> int:
    """The W&B step in the name of a media file: ``<key>_<step>_<hash>.<ending>``."""
    return int(file.stem.split("_")[-2])


def wandb_folders(folder: Path) -> list[Path]:
    """The folders of W&B runs, oldest first: ``wandb/[offline-]run-<date>_<time>-<id>``."""
    return sorted((folder / "wandb").glob("*run-*-*"), key=lambda path: path.name.split("run-")[1])


def evaluation_ids(folder: Path) -> Iterator[tuple[str, str]]:
    """The hash of each evaluation below ``folder`` and the W&B id of its last run."""
    for logs in sorted(folder.rglob("logs/*/wandb")):
        attempts = wandb_folders(logs.parent)
        if attempts:
            yield logs.parent.name, attempts[-1].name.rpartition("-")[2]


def differing_keys(runs: Sequence[RunFolder]) -> list[str]:
    """Config keys that were overridden in some run and differ between runs, except the seed."""
    given = [each for run in runs for each in run.overrides if not each.startswith(WITHOUT_EFFECT)]
    keys = dict.fromkeys(each.lstrip("+").partition("=")[0] for each in given)
    groups = [f"choices.{key}" if any(key in run.choices for run in runs) else key for key in keys if key != "seed"]
    return [key for key in groups if len({config_value(run, key) for run in runs}) > 1]


def config_value(run: RunFolder, key: str) -> str:
    """The value of a key in the configuration of a run."""
    if key.startswith("choices."):
        return str(run.choices.get(key.removeprefix("choices.")))
    return str(OmegaConf.select(run.full_config, key, throw_on_missing=False))


def compared_keys(rows: Sequence[Row]) -> list[str]:
    """Config keys of evaluations whose values differ: choices of the training, then :data:`EVALUATION_SETTINGS`."""
    choices: list[dict[str, Any]] = [row.get("choices") or {} for row in rows]
    groups = dict.fromkeys(group for each in choices for group in each)
    varied = [f"choices.{group}" for group in groups if len({each.get(group) for each in choices}) > 1]
    return varied + [key for key in EVALUATION_SETTINGS if len({row[key] for row in rows}) > 1]
