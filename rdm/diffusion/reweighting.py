"""Reweighting: the factor of the cross-entropy at step ``t`` (Table 2 of the paper)."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.diffusion.schedule import Schedule, ratio


class Reweighting(ABC):
    """``weight(t)`` for steps ``t`` in ``1..T``, float64, in the shape of ``t``."""

    @abstractmethod
    def weight(self, t: Tensor, schedule: Schedule) -> Tensor: ...


class Original(Reweighting):
    """``(alpha_{t-1} - alpha_t) / (1 - alpha_t)``, the weight of the variational bound; ``1/t`` if alpha is linear."""

    def weight(self, t: Tensor, schedule: Schedule) -> Tensor:
        alpha_t = schedule.alpha(t)
        return ratio(schedule.alpha(t - 1) - alpha_t, 1 - alpha_t)


class Linear(Reweighting):
    """``1 - (t - 1) / T`` (the paper's default)."""

    def weight(self, t: Tensor, schedule: Schedule) -> Tensor:
        return 1 - (t - 1).double() / schedule.num_steps


class Constant(Reweighting):
    """``1``."""

    def weight(self, t: Tensor, schedule: Schedule) -> Tensor:
        return torch.ones_like(t, dtype=torch.float64)
