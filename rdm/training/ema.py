"""Exponential moving average of the weights, which are the ones validated, decoded and saved."""

from collections.abc import Sequence

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor

from rdm.errors import require


def warmed_up_decay(decay: float, updates: int) -> float:
    """``min(decay, (1 + n) / (10 + n))``: a short run would otherwise be judged by its first, random weights."""
    return min(decay, (1 + updates) / (10 + updates))


class EMA(WeightAveraging):
    """Keeps ``average <- decay * average + (1 - decay) * weights`` and swaps it in for validation and checkpoints."""

    def __init__(self, decay: float = 0.9999) -> None:
        require(0 <= decay < 1, f"the decay of the moving average must lie in [0, 1), got {decay}")

        @torch.no_grad()
        def update(average: Sequence[Tensor], current: Sequence[Tensor], updates: Tensor | int) -> None:
            step = 1 - warmed_up_decay(decay, int(updates))
            torch._foreach_lerp_(list(average), list(current), step)

        # Buffers (noise tables, barred ids) are copied, not averaged.
        super().__init__(use_buffers=False, multi_avg_fn=update)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # The model is moved to its device after this; the average must be there from the start.
        self._device = trainer.strategy.root_device
        super().setup(trainer, pl_module, stage)
