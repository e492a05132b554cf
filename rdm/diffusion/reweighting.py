"""Reweighting: the factor of the cross-entropy at step ``t`` (Table 2 of the paper)."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.describe import Described
from rdm.diffusion.schedule import Schedule, ratio


class Reweighting(Described, ABC):
    """A weight for every step.

    >>> from rdm.diffusion.schedule import Linear as LinearSchedule
    >>> t, schedule = torch.arange(1, 5), LinearSchedule(num_steps=4)
    >>> Original().weight(t, schedule).tolist()
    [1.0, 0.5, 0.3333333333333333, 0.25]
    >>> Linear().weight(t, schedule).tolist()
    [1.0, 0.75, 0.5, 0.25]
    """

    @abstractmethod
    def weight(self, t: Tensor, schedule: Schedule) -> Tensor:
        """Return the weights of steps ``t`` in ``1..T``, float64, in the shape of ``t``."""


class Original(Reweighting):
    """``(alpha_{t-1} - alpha_t) / (1 - alpha_t)``, the weight of the variational bound.

    ``1/t`` for a linear schedule.
    """

    def weight(self, t: Tensor, schedule: Schedule) -> Tensor:
        alpha_t = schedule.alpha(t)
        return ratio(schedule.alpha(t - 1) - alpha_t, 1 - alpha_t)


class Linear(Reweighting):
    """``1 - (t - 1) / T`` (the default of the paper)."""

    def weight(self, t: Tensor, schedule: Schedule) -> Tensor:
        return 1 - (t - 1).double() / schedule.num_steps


class Constant(Reweighting):
    """``1`` at every step."""

    def weight(self, t: Tensor, schedule: Schedule) -> Tensor:
        return torch.ones_like(t, dtype=torch.float64)
