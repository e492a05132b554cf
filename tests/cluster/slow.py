"""Training that lasts long enough to be interrupted."""

import time
from typing import Any

import pytorch_lightning as pl


class SlowSteps(pl.Callback):
    """Waits in every step: ``+callbacks.slow._target_=tests.cluster.slow.SlowSteps +callbacks.slow.seconds=0.1``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_train_batch_start(self, *_: Any) -> None:
        time.sleep(self.seconds)
