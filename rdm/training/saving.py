"""When a run is saved: every so many steps, at its end, and when a signal asks it to stop."""

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
from rdm.training.checkpoints import FORMAT
from rdm.training.loggers import CSVLogger

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
EXIT = 128  # plus the number of the signal: what shells report too


class Saving(Checkpoint):
    """Saves between two optimiser steps, when all of the earlier one has been logged and validated.

    Lightning's own hooks come before that: a run killed after them would lack a row of its log, or a validation.

    Args:
        folder: of the checkpoints ``step_0000123.ckpt``, and of ``last.ckpt``, the newest there is.
        every_n_steps: how often.
        keep: how many numbered checkpoints stay.
    """

    def __init__(self, folder: str, every_n_steps: int, keep: int = 5) -> None:
        require(every_n_steps >= 1, f"callbacks.checkpoint.every_n_steps must be at least 1, got {every_n_steps}")
        require(keep >= 1, f"callbacks.checkpoint.keep must be at least 1, got {keep}")
        self.folder, self.every_n_steps, self.keep = Path(folder), every_n_steps, keep
        self.saved_step = 0  # no need to save before the first step
        self.at_end = False
        self.measured: dict[str, float] = {}  # when the checkpoint was saved that is gone on from
        self.signal = 0  # the one that was caught, if any

    # When.

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.train_dataloader.between_steps = partial(self._between_steps, trainer)  # type: ignore[union-attr]
        # Lightning has just put its own handler for SIGTERM, which talks to other ranks wherever they happen to be.
        self._catch_signals(trainer)

    def _between_steps(self, trainer: pl.Trainer) -> None:
        step = trainer.global_step
        # Lightning counts the step it resumes after twice if that step ended in a validation.
        trainer.fit_loop.epoch_loop._batches_that_stepped = step
        caught = self._caught_by_any_rank(trainer)
        if caught or step % self.every_n_steps == 0:
            self._save(trainer)
        if caught:
            name = signal.Signals(caught).name
            # Before its first step here, a run has nothing to save.
            saved = (self.folder / "last.ckpt").exists()
            done = f"saved at step {step}" if saved else f"stopped before step {step + 1}"
            rank_zero_only(print)(f"{name}: {done}; the same command with resume=auto goes on from there")
            raise SystemExit(EXIT + caught)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.fit_loop.done:
            self.at_end = True
            self._save(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Nothing may have been left to do but this, if the run was killed when its last checkpoint had just been saved.
        self._settle(trainer)

    # What.

    def _save(self, trainer: pl.Trainer) -> None:
        step = trainer.global_step
        if step != self.saved_step:
            trainer.save_checkpoint(self._file(step))
            self.saved_step = step
        self._settle(trainer)

    def _file(self, step: int) -> Path:
        """Numbered; between those, which are the ones that are averaged, ``last``."""
        return self.folder / (f"step_{step:07d}.ckpt" if step % self.every_n_steps == 0 else "last.ckpt")

    def _settle(self, trainer: pl.Trainer) -> None:
        """Let ``last`` name the checkpoint of this step, if it is a numbered one, and remove those that are too old."""
        file, last = self._file(trainer.global_step), self.folder / "last.ckpt"
        if not trainer.is_global_zero or file == last or not file.exists():
            return
        replace_symlink(last, file)
        # Newer ones could not be gone on from; they are written anew when the run gets there.
        until_here = [each for each in sorted(self.folder.glob("step_*.ckpt")) if each.name <= file.name]
        for old in until_here[: -self.keep]:
            old.unlink()

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        checkpoint["format"] = FORMAT
        checkpoint["measured"] = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if self.at_end:
            count_as_between_steps(checkpoint["loops"]["fit_loop"])
        if trainer.is_global_zero:
            checkpoint["metrics"] = [logger.so_far() for logger in tables(trainer)]

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        self.saved_step, self.measured = checkpoint["global_step"], checkpoint["measured"]
        if trainer.is_global_zero:
            for logger, rows in zip(tables(trainer), checkpoint["metrics"], strict=False):
                logger.go_on_from(rows)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Only now, because Lightning forgets between loading and this. The last validation may have been before.
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in self.measured.items()})

    # Signals.

    @contextmanager
    def heeding_signals(self, trainer: pl.Trainer) -> Iterator[None]:
        """Around ``trainer.fit``: a process that only waits for forked ranks hands signals on and ends as they do."""
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self._catch_signals(trainer)
        try:
            yield
        except ProcessExitedException as error:
            if error.exit_code > EXIT:
                raise SystemExit(error.exit_code) from error
            raise UserError(f"{error}; the same command with resume=auto goes on from the last checkpoint") from error
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _catch_signals(self, trainer: pl.Trainer) -> None:
        def note(number: int, frame: Any) -> None:
            self.signal = number
            if trainer.strategy.launcher is not None:
                trainer.strategy.launcher.kill(number)

        for number in SIGNALS:
            signal.signal(number, note)

    def _caught_by_any_rank(self, trainer: pl.Trainer) -> int:
        if trainer.world_size == 1:
            return self.signal
        caught = torch.tensor(self.signal, device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(caught, reduce_op="max"))


def tables(trainer: pl.Trainer) -> list[CSVLogger]:
    """The loggers whose rows are saved with a checkpoint."""
    return [logger for logger in trainer.loggers if isinstance(logger, CSVLogger)]


def count_as_between_steps(loops: dict[str, Any]) -> None:
    """Change Lightning's counts at the end of a run to what they are before a next step, so that it can be made longer.

    What Lightning saves there counts an epoch whose rest is still to come as over, and one that is over as going on.
    """
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
