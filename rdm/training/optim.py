"""Optimiser and learning-rate schedules."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from rdm.errors import require


class LearningRateSchedule(ABC):
    """A factor of the peak learning rate: linear warm-up, then a decay."""

    def __init__(self, warmup_steps: int) -> None:
        require(warmup_steps >= 0, f"optimizer.schedule.warmup_steps must be 0 or above, got {warmup_steps}")
        self.warmup_steps = warmup_steps

    def factor(self, step: int, total_steps: int) -> float:
        """At optimiser step 0, 1, ... of ``total_steps``."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        return self.decay(step, total_steps)

    @abstractmethod
    def decay(self, step: int, total_steps: int) -> float:
        """After the warm-up; 1 at its end."""


class InverseSqrt(LearningRateSchedule):
    """``sqrt(warmup / step)``."""

    def decay(self, step: int, total_steps: int) -> float:
        warmup = max(self.warmup_steps, 1)
        return math.sqrt(warmup / max(step, warmup))


class Cosine(LearningRateSchedule):
    """Half a cosine from 1 down to ``floor``."""

    def __init__(self, warmup_steps: int, floor: float = 0.0) -> None:
        super().__init__(warmup_steps)
        self.floor = floor

    def decay(self, step: int, total_steps: int) -> float:
        progress = min((step - self.warmup_steps) / max(total_steps - self.warmup_steps, 1), 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


class Optimization:
    """Adam with decoupled weight decay, and a schedule for its learning rate."""

    def __init__(
        self,
        schedule: LearningRateSchedule,
        lr: float = 5e-4,
        betas: tuple[float, float] = (0.9, 0.98),
        weight_decay: float = 0.01,
        eps: float = 1e-8,
    ) -> None:
        require(lr > 0, f"optimizer.lr must be above 0, got {lr}")
        fits = len(betas) == 2 and all(0 <= beta < 1 for beta in betas)
        require(fits, f"optimizer.betas must be two numbers in [0, 1), got {list(betas)}")
        self.schedule, self.lr, self.betas, self.weight_decay, self.eps = (
            schedule,
            lr,
            (betas[0], betas[1]),
            weight_decay,
            eps,
        )

    def build(
        self, parameters: Iterable[nn.Parameter], total_steps: float, fused: bool = True
    ) -> tuple[torch.optim.Optimizer, LambdaLR]:
        """The optimiser and its schedule over ``total_steps`` optimiser steps."""
        optimizer = AdamW(
            parameters, lr=self.lr, betas=self.betas, weight_decay=self.weight_decay, eps=self.eps, fused=fused
        )
        steps = int(min(total_steps, 2**31))
        return optimizer, LambdaLR(optimizer, lambda step: self.schedule.factor(step, steps))
