"""train.py interrupted by signals or a full disk.

``python -m tests.stops '{"SignalAfter": {"steps": 5}}' [override ...]`` runs train.py with one of these callbacks;
a configuration cannot name them.
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

LIMIT = 60  # seconds for a signal to arrive


class SignalAfter(pl.Callback):
    """Sends a signal during step number ``steps``, to the last rank only or to the launching process."""

    def __init__(self, steps: int, name: str = "SIGTERM", launcher: bool = False) -> None:
        self.steps, self.number, self.launcher = steps, signal.Signals[name], launcher

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        due = trainer.global_step + 1 == self.steps and trainer.global_rank == trainer.world_size - 1
        if due and batch_idx % trainer.accumulate_grad_batches == 0:
            saving = trainer.checkpoint_callback
            assert isinstance(saving, Saving)
            os.kill(os.getppid() if self.launcher else os.getpid(), self.number)
            until = time.monotonic() + LIMIT  # the launching process may forward it some steps later
            while not saving.signal and time.monotonic() < until:
                time.sleep(0.01)


class FullDisk(pl.Callback):
    """Makes every write fail from step number ``steps`` on."""

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
