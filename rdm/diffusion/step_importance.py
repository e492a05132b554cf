"""How the steps of Gaussian diffusion are drawn in training, and how their losses are weighted."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from rdm.describe import Described
from rdm.diffusion.warping import GAIN
from rdm.errors import require

SMALLEST_LOSS = 1e-6


class StepImportance(Described, nn.Module, ABC):
    """A distribution ``p(t)`` over the steps ``1..T``; a loss at step ``t`` gets the weight ``1 / (T p(t))``.

    The weighted loss has the expectation of the loss at uniform steps, whatever ``p`` is.
    """

    @abstractmethod
    def draw(self, u: Tensor, num_steps: int) -> tuple[Tensor, Tensor]:
        """Return steps ``t [R]`` and weights ``[R]`` for uniform numbers ``u [R]`` in ``[0, 1)``."""

    @abstractmethod
    def misfit(self, t: Tensor, losses: Tensor, num_steps: int) -> Tensor | None:
        """Return the misfit ``[R]`` of ``p`` to the losses ``[R]`` at steps ``t [R]``, or None if ``p`` is fixed."""


class UniformSteps(StepImportance):
    """Draws all steps with the same probability.

    >>> UniformSteps().draw(torch.tensor([0.0, 0.5, 0.999]), num_steps=2000)
    (tensor([   1, 1001, 1999]), tensor([1., 1., 1.]))
    """

    def draw(self, u: Tensor, num_steps: int) -> tuple[Tensor, Tensor]:
        return 1 + (u * num_steps).long().clamp(max=num_steps - 1), torch.ones_like(u)

    def misfit(self, t: Tensor, losses: Tensor, num_steps: int) -> Tensor | None:
        return None


class LossProportionalSteps(StepImportance):
    """Draws steps in proportion to the loss of the network at them, as it was lately.

    The official code of DiffuSeq keeps the last ten losses of every step and draws in proportion to their root mean
    square. Here ``log p`` is constant on ``bins`` equal parts of ``1..T`` and fitted to the logarithm of the loss by
    gradient steps of the training's optimiser: ranks agree on it, and checkpoints contain it.

    Args:
        bins: number of parts.
        uniform: share of the steps that are drawn uniformly; weights stay below its inverse.

    >>> LossProportionalSteps(bins=4).draw(torch.tensor([0.0, 0.5]), num_steps=2000)[1]    # before training: uniform
    tensor([1., 1.])
    """

    def __init__(self, bins: int = 50, uniform: float = 0.1) -> None:
        super().__init__()
        require(bins >= 1, f"system.steps.bins must be at least 1, got {bins}")
        require(0 < uniform <= 1, f"system.steps.uniform must lie in (0, 1], got {uniform}")
        self.uniform = uniform
        self.log_losses = nn.Parameter(torch.zeros(bins))  # divided by GAIN

    def _bin(self, t: Tensor, num_steps: int) -> Tensor:
        return (t - 1) * len(self.log_losses) // num_steps

    @torch.no_grad()
    def probabilities(self, num_steps: int) -> Tensor:
        """Return ``p [T]`` of the steps ``1..T``, in float64."""
        steps = torch.arange(1, num_steps + 1, device=self.log_losses.device)
        fitted = (GAIN * self.log_losses.double())[self._bin(steps, num_steps)].softmax(0)
        return (1 - self.uniform) * fitted + self.uniform / num_steps

    @torch.no_grad()
    def draw(self, u: Tensor, num_steps: int) -> tuple[Tensor, Tensor]:
        p = self.probabilities(num_steps)
        t = 1 + torch.searchsorted(p.cumsum(0), u.double(), right=True).clamp(max=num_steps - 1)
        return t, (1 / (num_steps * p[t - 1])).to(u.dtype)

    def misfit(self, t: Tensor, losses: Tensor, num_steps: int) -> Tensor | None:
        predicted = GAIN * self.log_losses[self._bin(t, num_steps)]
        return (predicted - losses.detach().clamp(min=SMALLEST_LOSS).log()).square()
