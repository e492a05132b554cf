"""Noised copies of each sentence: how many are trained on together, and how they are related.

:class:`Conditioned` is the paper's Algorithm 3; the others are the alternatives of its official code (ablation).
Configuration group: ``diffusion/pairing``.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.describe import Described
from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.process import DiffusionProcess


class NoisedCopies(Described, ABC):
    """Draws the steps and the noised copies of a batch.

    >>> from rdm.diffusion.noise import Absorbing
    >>> from rdm.diffusion.schedule import Linear
    >>> from rdm.vocab import Vocab
    >>> process = DiffusionProcess(Linear(num_steps=4), Absorbing(Vocab(size=9)))
    >>> noised = Conditioned()(process, torch.tensor([[5, 6, 7]]))
    >>> noised.x_t.shape, noised.copies
    (torch.Size([2, 3]), 2)
    """

    def __call__(self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None = None) -> NoisedBatch:
        """Noise clean tokens ``x0 [B, N]``; the copies of one sentence are adjacent rows."""
        copies, steps = zip(*self.draw(process, x0, generator), strict=True)
        x_t, t = torch.stack(copies, 1).flatten(0, 1), torch.stack(steps, 1).flatten()
        x0 = x0.repeat_interleave(len(copies), 0)
        return NoisedBatch(x0=x0, x_t=x_t, t=t, learnable=process.learnable(x0), copies=len(copies))

    @abstractmethod
    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        """Return each copy ``[B, N]`` with its steps ``[B]``."""


def uniform_steps(process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw ``t ~ Uniform{1..T}`` for each sentence: ``[B]``."""
    return torch.randint(1, process.num_steps + 1, x0.shape[:1], device=x0.device, generator=generator)


class Single(NoisedCopies):
    """One copy at one step (Algorithm 1)."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        t = uniform_steps(process, x0, generator)
        return [(process.corrupt(x0, t, generator), t)]


class Conditioned(NoisedCopies):
    """Two copies at steps ``s <= t``, the first conditioned on the second (Algorithm 3).

    ``x_s ~ q(x_s | x_t, x_0)`` if ``s < t``; the copies are independent if ``s = t``.
    """

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        first, second = uniform_steps(process, x0, generator), uniform_steps(process, x0, generator)
        s, t = torch.minimum(first, second), torch.maximum(first, second)
        x_t = process.corrupt(x0, t, generator)
        conditioned, fresh = process.step_posterior(x_t, x0, t, s, generator), process.corrupt(x0, s, generator)
        return [(torch.where((s == t)[:, None], fresh, conditioned), s), (x_t, t)]


class SameStep(NoisedCopies):
    """Two independent copies at one step."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        t = uniform_steps(process, x0, generator)
        return [(process.corrupt(x0, t, generator), t), (process.corrupt(x0, t, generator), t)]


class TwoSteps(NoisedCopies):
    """Two independent copies at two independent steps."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        single = Single()
        return single.draw(process, x0, generator) + single.draw(process, x0, generator)


class UniformMasks(NoisedCopies):
    """One copy with exactly ``n ~ Uniform{1..N}`` of its ``N`` learnable tokens noised (CMLM).

    The step is the one at which a linear schedule has noised the same share, ``t = ceil(T n / N)``.
    """

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        learnable = process.learnable(x0)
        length = learnable.sum(1)
        uniform = torch.rand(len(x0), 1 + x0.shape[1], dtype=torch.float64, device=x0.device, generator=generator)
        count = 1 + (uniform[:, 0] * length).long()
        rank = uniform[:, 1:].masked_fill(~learnable, 2.0).argsort(1).argsort(1)
        noised = (rank < count[:, None]) & learnable
        t = (process.num_steps * count / length.clamp(min=1)).ceil().long()
        return [(torch.where(noised, process.noise.sample(x0, generator), x0), t)]
