"""Training cost of a run: target tokens, seconds, CPU seconds and the machine."""

import time
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.machine import describe_machine
from rdm.training.checkpoints import COST_KEY


class TrainingCost(pl.Callback):
    """Counts target tokens, seconds and CPU seconds (user and system) over all ranks and all resumes of a run.

    The counts are saved in every checkpoint and copied from there into result rows. CPU seconds are those of the
    training processes, without data workers; on a CPU they do not depend on what else runs on the machine.
    """

    def __init__(self) -> None:
        self.resumed_from = {"target_tokens": 0, "seconds": 0.0, "cpu_seconds": 0.0}
        self.tokens: Tensor | int = 0  # a tensor on the device: converting it in every step would synchronise
        self.counted_steps = 0
        self.start_time, self.start_cpu_time = time.monotonic(), time.process_time()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.counted_steps = trainer.global_step
        self.start_time, self.start_cpu_time = time.monotonic(), time.process_time()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if trainer.global_step > self.counted_steps:  # the counts of a batch are those of the whole optimiser step
            self.tokens = self.tokens + batch.counts["tokens"]
            self.counted_steps = trainer.global_step

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        def total(count: Tensor) -> Tensor:
            """Return the sum over all ranks."""
            count = count.to(trainer.strategy.root_device)
            return trainer.strategy.reduce(count, reduce_op="sum") if trainer.world_size > 1 else count

        counts = {
            "target_tokens": int(total(torch.tensor(int(self.tokens)))),
            "seconds": time.monotonic() - self.start_time,
            "cpu_seconds": float(total(torch.tensor(time.process_time() - self.start_cpu_time))),
        }
        checkpoint[COST_KEY] = {
            **{name: self.resumed_from[name] + count for name, count in counts.items() if name in self.resumed_from},
            "machine": describe_machine(trainer.world_size),
        }

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        self.start_from(checkpoint)

    def start_from(self, checkpoint: dict) -> None:
        """Count what the run of a checkpoint has cost as part of this run; what it did not record is left out."""
        saved = checkpoint.get(COST_KEY, self.resumed_from)
        self.resumed_from = {name: saved[name] for name in self.resumed_from if name in saved}
