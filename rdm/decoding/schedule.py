"""How many tokens should be denoised after each of ``M`` iterations, and which steps these visit.

>>> Linear().denoised(1, 4, torch.tensor([8, 10]))     # after the first of four iterations
tensor([2, 3])
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor


class DecodingSchedule(ABC):
    """Grows from few denoised tokens to all of them; the last iteration always reaches all."""

    @abstractmethod
    def noise_rate(self, iteration: int, iterations: int) -> float:
        """Share of tokens that are still noise after ``iteration`` (1..M); 0 after the last."""

    def denoised(self, iteration: int, iterations: int, lengths: Tensor) -> Tensor:
        """``k`` for sentences of ``lengths`` tokens: ``N`` less the ``floor(N * noise_rate)`` that stay noisy."""
        return lengths - _floor(lengths, self.noise_rate(iteration, iterations))


class Linear(DecodingSchedule):
    """``1 - i/M`` stays noisy."""

    def noise_rate(self, iteration: int, iterations: int) -> float:
        return 1 - iteration / iterations


class Cosine(DecodingSchedule):
    """``cos(pi i / 2M)`` stays noisy: slow first (MaskGIT, and the official code of the paper)."""

    def noise_rate(self, iteration: int, iterations: int) -> float:
        return math.cos(math.pi / 2 * iteration / iterations)


class CosinePaper(DecodingSchedule):
    """``k = floor(N cos(pi s / 2T))`` is *denoised*, ``s`` the step arrived at: fast first (the paper's text)."""

    def noise_rate(self, iteration: int, iterations: int) -> float:
        return 1 - math.cos(math.pi / 2 * (1 - iteration / iterations))

    def denoised(self, iteration: int, iterations: int, lengths: Tensor) -> Tensor:
        return _floor(lengths, 1 - self.noise_rate(iteration, iterations))


def steps_to_visit(num_steps: int, iterations: int) -> list[int]:
    """From ``T`` down to 0 in ``iterations`` strides that differ by at most one."""
    return [num_steps - i * num_steps // iterations for i in range(iterations + 1)]


def _floor(lengths: Tensor, share: float) -> Tensor:
    # The guard keeps 10 * 0.7 = 6.999... from losing a token to rounding.
    return torch.floor(lengths.double() * share + 1e-9).long()
