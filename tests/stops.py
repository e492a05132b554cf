"""What clusters and people do to a run: ``python -m tests.stops '{"SignalAfter": {"steps": 5}}' [override ...]``.

It is train.py with one of these callbacks in it, which a configuration cannot name.
"""

import errno
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from rdm.training.saving import Saving

LIMIT = 60  # seconds until a signal has to be there


class SignalAfter(pl.Callback):
    """A signal in the middle of step number ``steps``, to the last rank alone, or to the process that waits for all."""

    def __init__(self, steps: int, name: str = "SIGTERM", launcher: bool = False) -> None:
        self.steps, self.number, self.launcher = steps, signal.Signals[name], launcher

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        due = trainer.global_step + 1 == self.steps and trainer.global_rank == trainer.world_size - 1
        if due and batch_idx % trainer.accumulate_grad_batches == 0:
            saving = trainer.checkpoint_callback
            assert isinstance(saving, Saving)
            os.kill(os.getppid() if self.launcher else os.getpid(), self.number)
            until = time.monotonic() + LIMIT  # it is handed on when the other process gets to it, maybe steps later
            while not saving.signal and time.monotonic() < until:
                time.sleep(0.01)


class FullDisk(pl.Callback):
    """From step number ``steps`` on nothing gets to the disk."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step + 1 == self.steps:
            os.fsync = self.fail

    @staticmethod
    def fail(descriptor: int | Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def main() -> None:
    ((name, options),) = json.loads(sys.argv.pop(1)).items()
    callback: pl.Callback = {"SignalAfter": SignalAfter, "FullDisk": FullDisk}[name](**options)
    Saving.on_train_batch_start = lambda self, *arguments: callback.on_train_batch_start(*arguments)
    runpy.run_path("train.py", run_name="__main__")


if __name__ == "__main__":
    main()
