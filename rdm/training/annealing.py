"""Attention-mask annealing: a network that was trained causally learns gradually to look ahead."""

from typing import Any

import pytorch_lightning as pl

from rdm.errors import require
from rdm.models.network import LooksAhead


class AttentionAnnealing(pl.Callback):
    """Raises the share of later positions that self-attention sees in training linearly from 0 to 1 (DiffuLLaMA).

    Validation and decoding always see all positions.

    Args:
        steps: optimiser steps until all positions are visible.
    """

    def __init__(self, steps: int) -> None:
        require(steps >= 1, f"callbacks.attention_annealing.steps must be at least 1, got {steps}")
        self.steps = steps

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        for module in pl_module.modules():
            if isinstance(module, LooksAhead):
                module.visible_share = min(trainer.global_step / self.steps, 1.0)
