"""Every use of Lightning that its documentation does not promise, so that an upgrade breaks here and nowhere else.

``tests/training/test_lightning_internals.py`` checks each assumption against the installed version, and
``pyproject.toml`` bounds that version. The data loader (:class:`~rdm.data.step_loader.StepLoader`) adds two assumptions
without touching an attribute: Lightning calls ``loader.sampler.set_epoch(epoch)`` before every epoch, and it saves and
restores a loader that has ``state_dict`` and ``load_state_dict``.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.plugins.precision import Precision
from pytorch_lightning.strategies import ModelParallelStrategy
from pytorch_lightning.utilities import GradClipAlgorithmType
from torch.optim import Optimizer

# The fit loop.


def set_logged_step(trainer: pl.Trainer, step: int) -> None:
    """Set the step number that loggers get; a run resumed after a validation at that step counts it twice."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = step


def is_fit_done(trainer: pl.Trainer) -> bool:
    """Return whether no epoch or step is left; meaningful at the end of an epoch."""
    return trainer.fit_loop.done


def restore_callback_metrics(trainer: pl.Trainer, metrics: Mapping[str, float]) -> None:
    """Set the metrics of the last validation, which Lightning resets between loading a checkpoint and ``fit``."""
    trainer.callback_metrics.update({name: torch.tensor(value) for name, value in metrics.items()})


def rewind_to_step_boundary(checkpoint: dict[str, Any]) -> None:
    """Change the loop counters of a checkpoint from the end of a run to before its next step.

    Such a checkpoint can be resumed with a larger ``max_steps``. At the end of a run Lightning counts an unfinished
    epoch as processed, and a finished epoch as still running.
    """
    loops = checkpoint["loops"]["fit_loop"]
    epochs, batches = loops["epoch_progress"], loops["epoch_loop.batch_progress"]
    if not batches["is_last_batch"]:
        for count in epochs.values():
            count["processed"] -= 1
        return
    for count in epochs.values():
        for stage in ("ready", "started", "completed"):
            count[stage] += 1
    batches["is_last_batch"] = False
    optimizer = loops["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    for progress in (batches, loops["epoch_loop.scheduler_progress"], *optimizer.values()):
        progress["current"] = dict.fromkeys(progress["current"], 0)


# Strategies and precision.


def forward_signal(trainer: pl.Trainer, number: int) -> None:
    """Send a signal to the ranks that this process has started."""
    if trainer.strategy.launcher is not None:
        trainer.strategy.launcher.kill(number)


def set_data_parallel_size(strategy: ModelParallelStrategy) -> None:
    """Use every device of all nodes for data parallelism; the number is not known in the constructor."""
    strategy._data_parallel_size = strategy.num_nodes * strategy.num_processes


def get_loss_scale(trainer: pl.Trainer) -> float | None:
    """Return the factor of the loss under ``16-mixed``; None where the loss is not scaled."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return None if scaler is None else scaler.get_scale()


def clip_gradients(trainer: pl.Trainer, optimizer: Optimizer, value: float, algorithm: str) -> None:
    """Clip by the base class's method: that of mixed precision refuses fused optimisers even without a loss scale."""
    Precision.clip_gradients(trainer.precision_plugin, optimizer, value, GradClipAlgorithmType(algorithm))


# The CSV logger.


def read_csv_rows(logger: CSVLogger) -> str:
    """Write what is buffered, and return the content of ``metrics.csv``."""
    logger.save()
    file = Path(logger.experiment.metrics_file_path)
    return file.read_text(encoding="utf-8") if file.exists() else ""


def prepend_csv_rows(logger: CSVLogger, rows: str) -> None:
    """Start ``metrics.csv``, which Lightning has emptied before, with ``rows``."""
    logger.experiment.metrics[:0] = csv.DictReader(io.StringIO(rows))
    logger.save()
