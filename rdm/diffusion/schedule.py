"""Noise schedules: the probability ``alpha_t`` that a token is still clean at step ``t``.

``alpha(0) = 1``, ``alpha(T)`` is 0 or nearly so, and ``beta_t = alpha_t / alpha_{t-1}`` is the probability of
*keeping* a token for one step (the convention of the paper). ``t`` is an integer in ``0..T``.

    >>> Linear(num_steps=4).alpha(torch.tensor([0, 1, 4]))
    tensor([1.0000, 0.7500, 0.0000], dtype=torch.float64)
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from rdm.describe import Described
from rdm.errors import require


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return ``numerator / denominator`` with 0 / 0 = 0, for states of probability zero."""
    return torch.where(denominator > 0, numerator / denominator.clamp(min=1e-300), 0.0)


class Schedule(Described, ABC):
    """``alpha_t`` for integer tensors ``t``, computed in float64.

    Args:
        num_steps: the number of steps ``T``.
    """

    def __init__(self, num_steps: int) -> None:
        require(num_steps >= 1, f"num_steps of the noise schedule must be at least 1, got {num_steps}")
        self.num_steps = num_steps

    @abstractmethod
    def alpha(self, t: Tensor) -> Tensor:
        """Return ``alpha_t``, float64, in the shape and on the device of ``t``."""

    def fraction(self, t: Tensor) -> Tensor:
        """Return ``t / T`` in float64."""
        return t.double() / self.num_steps


class Linear(Schedule):
    """``alpha_t = 1 - t / T``."""

    def alpha(self, t: Tensor) -> Tensor:
        return 1 - self.fraction(t)


class Cosine(Schedule):
    """``alpha_t = f(t) / f(0)``, ``f(t) = cos^2((t/T + s) / (1 + s) * pi/2)`` (Nichol & Dhariwal, 2021).

    >>> Cosine(num_steps=2, s=0).alpha(torch.tensor([0, 1]))
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    def __init__(self, num_steps: int, s: float = 0.008) -> None:
        super().__init__(num_steps)
        self.s = s

    def alpha(self, t: Tensor) -> Tensor:
        def f(u: Tensor) -> Tensor:
            return torch.cos((self.fraction(u) + self.s) / (1 + self.s) * math.pi / 2) ** 2

        return f(t) / f(torch.zeros_like(t))


class Sqrt(Schedule):
    """``alpha_t = f(t) / f(0)``, ``f(t) = 1 - sqrt(t / T + s)`` (Li et al., 2022).

    Most of the noise comes early. An ``s`` above 0 makes the first steps smaller; the last value is then clamped to 0.

    >>> Sqrt(num_steps=4).alpha(torch.tensor([0, 1, 4]))
    tensor([1.0000, 0.5000, 0.0000], dtype=torch.float64)
    """

    def __init__(self, num_steps: int, s: float = 0.0) -> None:
        super().__init__(num_steps)
        require(0 <= s < 1, f"s of the sqrt noise schedule must lie in [0, 1), got {s}")
        self.s = s

    def alpha(self, t: Tensor) -> Tensor:
        return (1 - (self.fraction(t) + self.s).sqrt()).clamp(min=0) / (1 - math.sqrt(self.s))


class Table(Schedule):
    """Listed values of ``alpha`` at equally spaced times from 0 to ``T``, linearly interpolated.

    Args:
        alphas: at least two values that start with 1 and never rise.
        num_steps: the number of steps ``T``; None takes one step from each value to the next, without interpolation.

    >>> Table([1.0, 0.9, 0.0], num_steps=4).alpha(torch.arange(5))
    tensor([1.0000, 0.9500, 0.9000, 0.4500, 0.0000], dtype=torch.float64)
    """

    def __init__(self, alphas: Sequence[float], num_steps: int | None = None) -> None:
        intervals = len(alphas) - 1
        require(intervals >= 1, f"alphas of the noise schedule needs at least two values, got {len(alphas)}")
        super().__init__(intervals if num_steps is None else num_steps)
        listed = torch.as_tensor(list(alphas), dtype=torch.float64)
        require(listed[0].item() == 1, f"alphas of the noise schedule must start with 1 (clean text), got {alphas[0]}")
        falling = bool((listed.diff() <= 0).all()) and bool((listed >= 0).all())
        require(falling, "alphas of the noise schedule must never rise and never be negative")
        place = torch.arange(self.num_steps + 1).double() * intervals / self.num_steps
        below = place.long()
        slope = torch.cat([listed.diff(), torch.zeros(1, dtype=torch.float64)])  # none after the last value
        self.table = listed[below] + (place - below) * slope[below]

    def alpha(self, t: Tensor) -> Tensor:
        return self.table.to(t.device)[t]
