"""Training cost of a run: target tokens, seconds and the machine."""

import time
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.machine import describe_machine
from rdm.training.checkpoints import COST_KEY


class TrainingCost(pl.Callback):
    """Counts target tokens and seconds over all ranks and all resumes of a run.

    The counts are saved in every checkpoint and copied from there into result rows.
    """

    def __init__(self) -> None:
        self.resumed_from = {"target_tokens": 0, "seconds": 0.0}
        self.tokens: Tensor | int = 0  # a tensor on the device: converting it in every step would synchronise
        self.counted_steps = 0
        self.start_time = time.monotonic()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.counted_steps = trainer.global_step
        self.start_time = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if trainer.global_step > self.counted_steps:  # the counts of a batch are those of the whole optimiser step
            self.tokens = self.tokens + batch.counts["tokens"]
            self.counted_steps = trainer.global_step

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        tokens = torch.tensor(int(self.tokens), device=trainer.strategy.root_device)  # a copy: it is reduced in place
        if trainer.world_size > 1:
            tokens = trainer.strategy.reduce(tokens, reduce_op="sum")
        checkpoint[COST_KEY] = {
            "target_tokens": self.resumed_from["target_tokens"] + int(tokens),
            "seconds": self.resumed_from["seconds"] + time.monotonic() - self.start_time,
            "machine": describe_machine(trainer.world_size),
        }

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        self.start_from(checkpoint)

    def start_from(self, checkpoint: dict) -> None:
        """Count what the run of a checkpoint has cost as part of this run."""
        saved = checkpoint.get(COST_KEY, self.resumed_from)
        self.resumed_from = {name: saved[name] for name in self.resumed_from}
