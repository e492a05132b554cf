"""Noise schedules: how much of the clean text survives at step ``t``.

``alpha(0) = 1``, ``alpha(T)`` is 0 or nearly so, and ``beta_t = alpha_t / alpha_{t-1}`` is the probability of
*keeping* a token for one step (the paper's convention). ``t`` is an integer in ``0..T``.

    >>> Linear(num_steps=4).alpha(torch.tensor([0, 1, 4]))
    tensor([1.0000, 0.7500, 0.0000], dtype=torch.float64)
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from rdm.errors import require


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """``numerator / denominator`` where 0 / 0 is 0: such a state has probability zero, but must not make NaN."""
    return torch.where(denominator > 0, numerator / denominator.clamp(min=1e-300), 0.0)


class Schedule(ABC):
    """``alpha_t`` for integer tensors ``t``, computed in float64."""

    def __init__(self, num_steps: int) -> None:
        require(num_steps >= 1, f"num_steps of the noise schedule must be at least 1, got {num_steps}")
        self.num_steps = num_steps

    @abstractmethod
    def alpha(self, t: Tensor) -> Tensor:
        """``alpha_t``, float64, in the shape and on the device of ``t``."""

    def fraction(self, t: Tensor) -> Tensor:
        """``t / T`` in float64."""
        return t.double() / self.num_steps


class Linear(Schedule):
    """``alpha_t = 1 - t / T``."""

    def alpha(self, t: Tensor) -> Tensor:
        return 1 - self.fraction(t)


class Cosine(Schedule):
    """``alpha_t = f(t) / f(0)``, ``f(t) = cos^2((t/T + s) / (1 + s) * pi/2)`` (Nichol & Dhariwal, 2021)."""

    def __init__(self, num_steps: int, s: float = 0.008) -> None:
        super().__init__(num_steps)
        self.s = s

    def alpha(self, t: Tensor) -> Tensor:
        def f(u: Tensor) -> Tensor:
            return torch.cos((self.fraction(u) + self.s) / (1 + self.s) * math.pi / 2) ** 2

        return f(t) / f(torch.zeros_like(t))


class Sqrt(Schedule):
    """``alpha_t = f(t) / f(0)``, ``f(t) = 1 - sqrt(t / T + s)``: most of the noise comes early (Li et al., 2022).

    An ``s`` above 0 softens the very first steps; the last one is then cut off at 0.
    """

    def __init__(self, num_steps: int, s: float = 0.0) -> None:
        super().__init__(num_steps)
        require(0 <= s < 1, f"the s of a sqrt schedule must lie in [0, 1), got {s}")
        self.s = s

    def alpha(self, t: Tensor) -> Tensor:
        return (1 - (self.fraction(t) + self.s).sqrt()).clamp(min=0) / (1 - math.sqrt(self.s))


class Table(Schedule):
    """A given table ``alpha_0 .. alpha_T``."""

    def __init__(self, alphas: Sequence[float]) -> None:
        super().__init__(len(alphas) - 1)
        self.table = torch.as_tensor(alphas, dtype=torch.float64)
        require(self.table[0].item() == 1, f"an alpha table starts with 1 (clean text), got {alphas[0]}")
        falling = bool((self.table.diff() <= 0).all()) and bool((self.table >= 0).all())
        require(falling, "an alpha table must fall and stay at 0 or above")

    def alpha(self, t: Tensor) -> Tensor:
        return self.table.to(t.device)[t]
