"""Callback that measures which share of a training run is not training."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from rdm.files import write_text


class Shares(pl.Callback):
    """Writes the seconds of a run spent in ``training``, ``validation``, ``saving`` and ``logging`` as JSON.

    What is logged or saved during a validation counts as logging or saving. Set-up before the first step is left out.

    Args:
        file: the file to write when training ends.
    """

    def __init__(self, file: str) -> None:
        self.file = Path(file)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.parts = ["training"]
        self.since = time.perf_counter()

    def start(self, part: str) -> None:
        """Count the time from now on as ``part``."""
        self._add()
        self.parts.append(part)

    def stop(self) -> None:
        """Count the time from now on as what was counted before the last :meth:`start`."""
        self._add()
        self.parts.pop()

    def _add(self) -> None:
        now = time.perf_counter()
        self.seconds[self.parts[-1]] += now - self.since
        self.since = now

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        self.start(part)
        yield
        self.stop()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, whose time counts as ``part``."""

        def run(*arguments: Any, **options: Any) -> Any:
            with self.within(part):
                return function(*arguments, **options)

        return run

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint = self.timed("saving", trainer.save_checkpoint)  # type: ignore[method-assign]
        for logger in trainer.loggers:
            logger.log_metrics = self.timed("logging", logger.log_metrics)  # type: ignore[method-assign]
            logger.save = self.timed("logging", logger.save)  # type: ignore[method-assign]
        self.seconds.clear()
        self.since = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.start("validation")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stop()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._add()
        write_text(self.file, json.dumps(self.seconds))
