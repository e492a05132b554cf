"""Decoding schedules: how many tokens are denoised after each of ``M`` iterations.

>>> Linear().denoised(1, 4, torch.tensor([8, 10]))     # after the first of four iterations
tensor([2, 3])
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.describe import Described


class DecodingSchedule(Described, ABC):
    """The number of denoised tokens per iteration; it never decreases and reaches all tokens in the last one."""

    @abstractmethod
    def noise_rate(self, iteration: int, iterations: int) -> float:
        """Return the share of noisy tokens after ``iteration`` (1..M); 0 after the last."""

    def denoised(self, iteration: int, iterations: int, lengths: Tensor) -> Tensor:
        """Return ``k = N - floor(N * noise_rate)`` for sentences of ``lengths`` tokens."""
        return lengths - _floor(lengths, self.noise_rate(iteration, iterations))


class Linear(DecodingSchedule):
    """Noise rate ``1 - i/M``."""

    def noise_rate(self, iteration: int, iterations: int) -> float:
        return 1 - iteration / iterations


class Cosine(DecodingSchedule):
    """Noise rate ``cos(pi i / 2M)``: few tokens first (MaskGIT, and the official code of the paper).

    >>> round(Cosine().noise_rate(1, 3), 4)
    0.866
    """

    def noise_rate(self, iteration: int, iterations: int) -> float:
        return math.cos(math.pi / 2 * iteration / iterations)


class CosinePaper(DecodingSchedule):
    """``k = floor(N cos(pi s / 2T))`` tokens are *denoised* at step ``s``: many tokens first (the paper's text)."""

    def noise_rate(self, iteration: int, iterations: int) -> float:
        return 1 - math.cos(math.pi / 2 * (1 - iteration / iterations))

    def denoised(self, iteration: int, iterations: int, lengths: Tensor) -> Tensor:
        return _floor(lengths, 1 - self.noise_rate(iteration, iterations))


def steps_to_visit(num_steps: int, iterations: int) -> list[int]:
    """Return the steps from ``num_steps`` down to 0 in ``iterations`` strides that differ by at most one.

    With more iterations than steps, some strides are 0 and steps repeat; 0 is reached in the last stride only.

    >>> steps_to_visit(50, 4), steps_to_visit(2, 4)
    ([50, 38, 25, 13, 0], [2, 2, 1, 1, 0])
    """
    return [num_steps - i * num_steps // iterations for i in range(iterations + 1)]


def _floor(lengths: Tensor, share: float) -> Tensor:
    # 1e-9 prevents that 10 * 0.7 = 6.999... is rounded down to 6.
    return torch.floor(lengths.double() * share + 1e-9).long()
