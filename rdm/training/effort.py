"""What a run has cost so far: target tokens seen, time, and on which machine."""

import os
import platform
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from rdm.data.batching import Batch

CPUS = Path("/proc/cpuinfo")


class Effort(pl.Callback):
    """Counts over all attempts of a run, on all ranks; saved with every checkpoint, and from there in result rows."""

    def __init__(self) -> None:
        self.earlier = {"target_tokens": 0, "seconds": 0.0}  # up to the checkpoint that is gone on from
        self.tokens: Tensor | int = 0
        self.counted = 0  # optimiser steps
        self.began = time.monotonic()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.counted = trainer.global_step
        self.began = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if trainer.global_step > self.counted:  # what a batch counts is the whole optimiser step
            self.tokens = self.tokens + batch.counts["tokens"]
            self.counted = trainer.global_step

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        own = torch.tensor(int(self.tokens), device=trainer.strategy.root_device)  # it is summed up in place
        everyone = trainer.strategy.reduce(own, reduce_op="sum") if trainer.world_size > 1 else own
        checkpoint["effort"] = {
            "target_tokens": self.earlier["target_tokens"] + int(everyone),
            "seconds": self.earlier["seconds"] + time.monotonic() - self.began,
            "machine": machine(trainer.world_size),
        }

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        self.earlier = {name: checkpoint.get("effort", self.earlier)[name] for name in self.earlier}


def machine(processes: int = 1) -> str:
    """What computes, in a line."""
    if torch.cuda.is_available():
        return f"{processes} x {torch.cuda.get_device_name()}"
    names = [line.partition(":")[2].strip() for line in _lines(CPUS) if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{name}, {os.cpu_count()} cores, {processes * torch.get_num_threads()} threads"


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
