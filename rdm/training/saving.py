"""When checkpoints are saved: every ``n`` steps, at the end of training, at the best validation, and at a signal."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch.multiprocessing import ProcessExitedException

from rdm.errors import UserError, require
from rdm.files import replace_symlink
from rdm.training.best import BestValidation, ValidationMetric
from rdm.training.checkpoints import FORMAT
from rdm.training.lightning_internals import (
    forward_signal,
    is_fit_done,
    restore_callback_metrics,
    rewind_to_step_boundary,
    set_logged_step,
)
from rdm.training.loggers import CSVLogger

BEST = "best.ckpt"
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
REQUEUE_SIGNAL = signal.SIGUSR2  # sent to jobs of submitit before the time limit; its handler requeues the job
SIGNAL_EXIT_CODE = 128  # plus the number of the signal, as shells report it


class Saving(Checkpoint):
    """Saves between two optimiser steps, after the earlier step has been logged and validated.

    Lightning's hooks run before that: a run killed after such a save would lack a log row or a validation.

    Args:
        folder: where ``step_0000123.ckpt`` and ``last.ckpt``, the newest checkpoint, are written.
        every_n_steps: optimiser steps between two numbered checkpoints.
        keep: how many numbered checkpoints are kept.
        best: metric by which ``best.ckpt`` is selected; None writes no such file.
        patience: number of validations without improvement of ``best`` after which training stops.
    """

    def __init__(
        self,
        folder: str,
        every_n_steps: int,
        keep: int = 5,
        best: ValidationMetric | None = None,
        patience: int | None = None,
    ) -> None:
        require(every_n_steps >= 1, f"callbacks.checkpoint.every_n_steps must be at least 1, got {every_n_steps}")
        require(keep >= 1, f"callbacks.checkpoint.keep must be at least 1, got {keep}")
        require(best is not None or patience is None, "patience needs a metric, e.g. best=val/bleu")
        self.folder, self.every_n_steps, self.keep = Path(folder), every_n_steps, keep
        self.best = None if best is None else BestValidation(best, patience)
        self.best_is_current = False  # whether the last validation was the best, and is not saved yet
        self.saved_step = 0  # nothing is saved before the first step
        self.at_end = False
        self.restored_metrics: dict[str, float] = {}  # of the last validation before the resume
        self.signal = 0  # the number of the signal that was caught, if any
        self.requeue: Any = None  # the handler of ``REQUEUE_SIGNAL`` before training

    # When to save.

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.train_dataloader.between_steps = partial(self._between_steps, trainer)  # type: ignore[union-attr]
        # Lightning has just set its own SIGTERM handler, which communicates with other ranks at any point of a step.
        self._catch_signals(trainer)

    def _between_steps(self, trainer: pl.Trainer) -> None:
        step = trainer.global_step
        set_logged_step(trainer, step)
        caught = self._caught_by_any_rank(trainer)
        self._save_best(trainer)
        if caught or step % self.every_n_steps == 0:
            self._save(trainer)
        if caught:
            name = signal.Signals(caught).name
            # Before its first step a new run has nothing to save.
            saved = (self.folder / "last.ckpt").exists()
            done = f"saved at step {step}" if saved else f"stopped before step {step + 1}"
            handled = caught == REQUEUE_SIGNAL and callable(self.requeue)
            advice = "" if handled else "; run the same command with resume=auto to resume"
            rank_zero_only(print)(f"{name}: {done}{advice}")
            if handled and trainer.is_global_zero:
                self.requeue(caught, None)
            raise SystemExit(SIGNAL_EXIT_CODE + caught)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if is_fit_done(trainer):
            self.at_end = True
            self._save_best(trainer)
            self._save(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.best is None or trainer.sanity_checking:
            return
        self.best_is_current = self.best.update(trainer.callback_metrics)
        if self.best.exhausted:
            best = self.best
            rank_zero_only(print)(f"stopped early: {best.metric} was best at {best.value:.4g}; evaluate with best=true")
            trainer.should_stop = True

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # If the run was killed right after its last save, this is all a resume has left to do.
        self.at_end = True
        self._update_folder(trainer)

    # What to save.

    def _save(self, trainer: pl.Trainer) -> None:
        step = trainer.global_step
        if step != self.saved_step:
            trainer.save_checkpoint(self._file(step))
            self.saved_step = step
        self._update_folder(trainer)

    def _save_best(self, trainer: pl.Trainer) -> None:
        if self.best_is_current:
            trainer.save_checkpoint(self.folder / BEST)
            self.best_is_current = False

    def _file(self, step: int) -> Path:
        """Return the numbered file at the end and of a multiple of ``every_n_steps``, otherwise ``last.ckpt``."""
        numbered = self.at_end or step % self.every_n_steps == 0
        return self.folder / (f"step_{step:07d}.ckpt" if numbered else "last.ckpt")

    def _update_folder(self, trainer: pl.Trainer) -> None:
        """Link ``last.ckpt`` to the numbered checkpoint of this step, and remove those beyond ``keep``."""
        file, last = self._file(trainer.global_step), self.folder / "last.ckpt"
        if not trainer.is_global_zero or file == last or not file.exists():
            return
        replace_symlink(last, file)
        # Newer files are left alone: they were damaged, or the resume would have used them, and will be overwritten.
        candidates = [each for each in sorted(self.folder.glob("step_*.ckpt")) if each.name <= file.name]
        for old in candidates[: -self.keep]:
            old.unlink()

    def state_dict(self) -> dict[str, Any]:
        return {} if self.best is None else self.best.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.best is not None:
            self.best.load_state_dict(state_dict)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        checkpoint["format"] = FORMAT
        checkpoint["measured"] = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if self.at_end:
            rewind_to_step_boundary(checkpoint)
        if trainer.is_global_zero:
            checkpoint["metrics"] = [logger.export_rows() for logger in csv_loggers(trainer)]

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        self.saved_step, self.restored_metrics = checkpoint["global_step"], checkpoint["measured"]
        if trainer.is_global_zero:
            for logger, rows in zip(csv_loggers(trainer), checkpoint["metrics"], strict=False):
                logger.restore_rows(rows)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # The last validation may have been before the resume, and a sweep reads its value at the end of the run.
        restore_callback_metrics(trainer, self.restored_metrics)
        if self.best is None:
            return
        # A run that is continued in another folder takes the best checkpoint along.
        earlier = Path(trainer.ckpt_path or self.folder / BEST).with_name(BEST)
        if trainer.is_global_zero and earlier.is_file() and not (self.folder / BEST).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(earlier, self.folder / BEST)
        if self.best.exhausted:  # the run had stopped early
            trainer.should_stop = True

    # Signals.

    @contextmanager
    def handle_signals(self, trainer: pl.Trainer) -> Iterator[None]:
        """Handle signals during ``trainer.fit``; a process that only waits for forked ranks forwards them.

        The launching process exits with the code of its ranks.
        """
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self.requeue = handlers[REQUEUE_SIGNAL]
        self._catch_signals(trainer)
        try:
            yield
        except ProcessExitedException as error:
            if error.exit_code > SIGNAL_EXIT_CODE:
                raise SystemExit(error.exit_code) from error
            raise UserError(f"{error}; run the same command with resume=auto to resume") from error
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _catch_signals(self, trainer: pl.Trainer) -> None:
        def catch(number: int, frame: Any) -> None:
            self.signal = number
            forward_signal(trainer, number)

        for number in SIGNALS:
            signal.signal(number, catch)

    def _caught_by_any_rank(self, trainer: pl.Trainer) -> int:
        if trainer.world_size == 1:
            return self.signal
        caught = torch.tensor(self.signal, device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(caught, reduce_op="max"))


def csv_loggers(trainer: pl.Trainer) -> list[CSVLogger]:
    """Return the loggers whose rows are saved in checkpoints."""
    return [logger for logger in trainer.loggers if isinstance(logger, CSVLogger)]
