"""Progress of a run: speed and time left to every logger, a bar in a terminal, plain lines in a log file."""

import shutil
import sys
import time
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor

from rdm.data.batch import Batch
from rdm.errors import require


class Progress(pl.Callback):
    """Prints step, loss, learning rate, gradient norm, target tokens per second and time left of the run.

    Speed and time left are also logged (``train/tokens_per_second``, ``train/seconds_left``); loggers get the other
    values from the module. In a terminal all of them follow a progress bar.

    Args:
        every_n_steps: optimiser steps between two lines, or between two updates of the values behind the bar.
    """

    def __init__(self, every_n_steps: int) -> None:
        require(every_n_steps >= 1, f"callbacks.progress.every_n_steps must be at least 1, got {every_n_steps}")
        self.every_n_steps = every_n_steps
        self.lr = 0.0  # of the current step
        self.line = ""  # the last one
        self.validation_start = 0.0
        self._restart(0)

    def _restart(self, step: int) -> None:
        """Start an interval at ``step``."""
        self.first_step = self.counted_step = step
        self.tokens: Tensor | int = 0  # a tensor on the device: converting it in every step would synchronise
        self.start_time = time.monotonic()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._restart(trainer.global_step)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.lr = trainer.optimizers[0].param_groups[0]["lr"]  # after the batch it is that of the next step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step == self.counted_step:
            return  # gradients are still being accumulated
        self.counted_step = step
        self.tokens = self.tokens + batch.counts["tokens"]  # the counts of a batch are those of the whole step
        if step % self.every_n_steps != 0 and step != trainer.max_steps:
            draw_bar(step, trainer.max_steps, self.line)
            return
        tokens = torch.tensor(float(self.tokens), device=trainer.strategy.root_device)
        tokens = trainer.strategy.reduce(tokens, reduce_op="sum") if trainer.world_size > 1 else tokens
        seconds = max(time.monotonic() - self.start_time, 1e-9)
        speed = {"train/tokens_per_second": float(tokens) / seconds}
        if trainer.max_steps > -1:
            speed["train/seconds_left"] = (trainer.max_steps - step) * seconds / (step - self.first_step)
        for name, value in speed.items():
            pl_module.log(name, value, batch_size=1)
        values = {name: float(value) for name, value in trainer.callback_metrics.items()} | speed
        self.line = describe_step(step, trainer.max_steps, self.lr, values)
        print_line(self.line)
        draw_bar(step, trainer.max_steps, self.line)
        self._restart(step)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.validation_start = time.monotonic()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        values = {name: value for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
        shown = ", ".join(f"{name} {float(value):.4g}" for name, value in sorted(values.items()))
        rank_zero_only(print)(f"validation at step {trainer.global_step}: {shown}", flush=True)
        self.start_time += time.monotonic() - self.validation_start  # the speed is that of training alone


def describe_step(step: int, max_steps: int, lr: float, values: dict[str, float]) -> str:
    """Return one line about a step; values that are not known are left out.

    >>> describe_step(20, 100, 1e-3, {"train/loss": 2.5, "train/tokens_per_second": 1234.5, "train/seconds_left": 65})
    'step 20/100, loss 2.5, lr 0.001, 1,234 target tokens/s, 0:01:05 left'
    """
    parts = [f"step {step}" + (f"/{max_steps}" if max_steps > -1 else "")]
    if "train/loss" in values:
        parts.append(f"loss {values['train/loss']:.4g}")
    parts.append(f"lr {lr:.3g}")
    if "train/gradient_norm" in values:
        parts.append(f"gradient norm {values['train/gradient_norm']:.3g}")
    parts.append(f"{values['train/tokens_per_second']:,.0f} target tokens/s")
    if "train/seconds_left" in values:
        parts.append(f"{timedelta(seconds=round(values['train/seconds_left']))} left")
    return ", ".join(parts)


@rank_zero_only
def print_line(line: str) -> None:
    """Print a line, in a terminal only to the copy of the output in ``train.log``."""
    if not sys.stdout.isatty():
        print(line, flush=True)
    elif (write_to_file := getattr(sys.stdout, "write_to_file", None)) is not None:
        write_to_file(f"{line}\n")


@rank_zero_only
def draw_bar(step: int, max_steps: int, line: str) -> None:
    """Draw a progress bar with the last line behind it; only in a terminal, where the next one overwrites it."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        # One write: text that ends in a carriage return is not copied to train.log.
        sys.stdout.write(f"{bar(step, max_steps)} {line or f'step {step}'}"[:width] + "\r")
        sys.stdout.flush()


def bar(step: int, max_steps: int, width: int = 20) -> str:
    """Return the share of steps done as a bar; without a last step, the number of steps.

    >>> bar(5, 20, width=8)
    '━━────── 25%'
    """
    if max_steps < 1:
        return f"step {step}"
    filled = width * step // max_steps
    return f"{'━' * filled}{'─' * (width - filled)} {step / max_steps:.0%}"
