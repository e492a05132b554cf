"""Loggers: they go on where a run was killed, and keep what belongs to one job apart from the next."""

import csv
import functools
import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import pytorch_lightning.loggers as lightning
from omegaconf import DictConfig
from pytorch_lightning.loggers import Logger, WandbLogger

from rdm.errors import UserError
from rdm.files import write_text

Result = TypeVar("Result")
# What tells runs of an ablation apart: tags, and what is trained also the group, whose curves W&B averages over seeds.
TRAINED = ("data", "system", "diffusion", "reweighting")
TAGGED = (*TRAINED, "decoding", "schedule", "steps")


class CSVLogger(lightning.CSVLogger):
    """Rows are saved with a checkpoint: after a resume none is missing, and none of a lost step is there twice."""

    def so_far(self) -> str:
        """``metrics.csv`` as it should be now."""
        self.save()
        file = Path(self.experiment.metrics_file_path)
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def go_on_from(self, rows: str) -> None:
        """Begin with ``rows``. What was in the file before is gone already: Lightning empties it."""
        self.experiment.metrics[:0] = csv.DictReader(io.StringIO(rows))
        self.save()


def wandb_logger(
    project: str,
    save_dir: str,
    job_type: str,
    choices: Mapping[str, Any],
    name: str | None = None,
    offline: bool | None = None,
) -> WandbLogger:
    """Weights & Biases; without a key the run is kept offline, instead of asking for one.

    Args:
        job_type: ``train`` or ``evaluate``.
        choices: the word chosen for each config group; group and tags follow from them.
    """
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb needs the loggers extra: pip install -e '.[loggers]'") from error
    if offline is None:
        offline = not wandb.login(prompt=False)
    # Said twice: after the look for a key, wandb no longer reads the environment variable that Lightning sets.
    mode: dict[str, Any] = {"mode": "offline"} if offline else {}
    return WandbLogger(
        project=project,
        save_dir=save_dir,
        name=name,
        id=identity(Path(save_dir)) if job_type == "train" else None,
        offline=offline,
        group="/".join(str(choices[each]) for each in TRAINED if each in choices),
        job_type=job_type,
        tags=[f"{each}:{choices[each]}" for each in TAGGED if each in choices],
        **mode,
    )


def identity(folder: Path) -> str:
    """The W&B id of the run in ``folder``, which keeps it when it is resumed."""
    file = folder / "wandb_id"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_text(file, token_hex(4))
    return file.read_text(encoding="utf-8")


def one_run(job: Callable[[DictConfig], Result]) -> Callable[[DictConfig], Result]:
    """Decorates a script: a W&B run left open would take in what the next job of a sweep logs."""

    @functools.wraps(job)
    def closing(config: DictConfig) -> Result:
        try:
            return job(config)
        finally:
            if "wandb" in sys.modules:
                sys.modules["wandb"].finish()

    return closing


def log_row(logger: Logger, row: Mapping[str, Any]) -> None:
    """A result row: its settings as hyper-parameters, and the metrics that have a value."""
    logger.log_hyperparams({name: value for name, value in row.items() if name != "metrics"})
    values = {f"{row['split']}/{name}": metric["value"] for name, metric in row["metrics"].items()}
    speed = {f"{row['split']}/sentences_per_second": row["sentences_per_second"]}
    logger.log_metrics({name: value for name, value in values.items() if value is not None} | speed)
    logger.finalize("success")
