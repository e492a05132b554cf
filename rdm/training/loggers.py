"""Loggers that continue after a resume, and W&B runs that end with their job."""

from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytorch_lightning.loggers as lightning
from pytorch_lightning.loggers import Logger, WandbLogger

from rdm.errors import UserError
from rdm.files import write_text
from rdm.training.lightning_internals import prepend_csv_rows, read_csv_rows

GROUPED_BY = ("data", "system", "diffusion", "reweighting")
"""Config groups that make up the W&B group, over whose seeds W&B averages curves."""
TAGS = (*GROUPED_BY, "decoding", "schedule", "steps", "seed")


class CSVLogger(lightning.CSVLogger):
    """Logger whose rows are saved in checkpoints: a resumed run lacks no row and repeats none."""

    def export_rows(self) -> str:
        """Return all rows logged so far, as the text of ``metrics.csv``."""
        return read_csv_rows(self)

    def restore_rows(self, rows: str) -> None:
        """Start ``metrics.csv`` with ``rows``."""
        prepend_csv_rows(self, rows)


def wandb_logger(
    project: str,
    save_dir: str,
    job_type: str,
    choices: Mapping[str, Any],
    name: str | None = None,
    offline: bool | None = None,
) -> WandbLogger:
    """Return a logger for Weights & Biases; without an API key the run is offline, and none is asked for.

    Args:
        job_type: ``train`` or ``evaluate``.
        choices: the choice of each config group, from which the W&B group and tags are made; also ``steps``, ``seed``
            and ``name`` of the training run.
        name: name of the W&B run; default: that of the training run, for an evaluation followed by its decoding.
    """
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb needs the loggers extra: pip install -e '.[loggers]'") from error
    if offline is None:
        offline = not wandb.login(prompt=False)
    # wandb.login has read the environment already, so the WANDB_MODE that Lightning sets has no effect.
    mode: dict[str, Any] = {"mode": "offline"} if offline else {}
    return WandbLogger(
        project=project,
        save_dir=save_dir,
        name=name or wandb_run_name(job_type, choices),
        id=wandb_run_id(Path(save_dir)) if job_type == "train" else None,
        offline=offline,
        group="/".join(str(choices[each]) for each in GROUPED_BY if each in choices),
        job_type=job_type,
        tags=[f"{each}:{choices[each]}" for each in TAGS if each in choices],
        **mode,
    )


def wandb_run_name(job_type: str, choices: Mapping[str, Any]) -> str | None:
    """Return e.g. ``rdm_absorbing reweighting=linear seed=1``, and for an evaluation also ``: rdm, 10 iterations``."""
    name = choices.get("name")
    if job_type == "train" or name is None:
        return name
    steps = choices.get("steps")
    return f"{name}: {choices['decoding']}" + ("" if steps is None else f", {steps} iterations")


def wandb_run_id(folder: Path) -> str:
    """Return the W&B id of the run in ``folder``; it is kept in a file, so that a resume continues the W&B run."""
    file = folder / "wandb_id"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_text(file, token_hex(4))
    return file.read_text(encoding="utf-8")


def log_row(logger: Logger, row: Mapping[str, Any]) -> None:
    """Log a result row: its settings as hyperparameters, and its metrics except those without a value."""
    logger.log_hyperparams({name: value for name, value in row.items() if name != "metrics"})
    values = {f"{row['split']}/{name}": metric["value"] for name, metric in row["metrics"].items()}
    speed = {f"{row['split']}/sentences_per_second": row["sentences_per_second"]}
    logger.log_metrics({name: value for name, value in values.items() if value is not None} | speed)
    logger.finalize("success")
