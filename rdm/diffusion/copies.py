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
from rdm.diffusion.steps import StepDraw, UniformSteps
from rdm.masks import random_subset


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


class AtDrawnSteps(NoisedCopies):
    """Copies at steps that are drawn without looking at the sentence.

    Args:
        steps: how they are drawn; by default independently.
    """

    def __init__(self, steps: StepDraw | None = None) -> None:
        self.steps = steps or UniformSteps()


class Single(AtDrawnSteps):
    """One copy at one step (Algorithm 1)."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        t = self.steps(process, x0, generator)
        return [(process.corrupt(x0, t, generator), t)]


class Conditioned(AtDrawnSteps):
    """Two copies at steps ``s <= t``, the first conditioned on the second (Algorithm 3).

    ``x_s ~ q(x_s | x_t, x_0)`` if ``s < t``; the copies are independent if ``s = t``.
    """

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        first, second = self.steps(process, x0, generator), self.steps(process, x0, generator)
        s, t = torch.minimum(first, second), torch.maximum(first, second)
        x_t = process.corrupt(x0, t, generator)
        conditioned, fresh = process.step_posterior(x_t, x0, t, s, generator), process.corrupt(x0, s, generator)
        return [(torch.where((s == t)[:, None], fresh, conditioned), s), (x_t, t)]


class SameStep(AtDrawnSteps):
    """Two independent copies at one step."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        t = self.steps(process, x0, generator)
        return [(process.corrupt(x0, t, generator), t), (process.corrupt(x0, t, generator), t)]


class TwoSteps(AtDrawnSteps):
    """Two independent copies at two independent steps."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        single = Single(self.steps)
        return single.draw(process, x0, generator) + single.draw(process, x0, generator)


class Complementary(AtDrawnSteps):
    """Two copies of which the second is noised exactly where the first is not: every token is learned once.

    The first copy is ``x_t ~ q(x_t | x_0)``. The second has the step at which the schedule keeps as large a share of
    tokens as the first noises, ``alpha_s = 1 - alpha_t`` (``s = T - t`` for a linear schedule), so it is a sample of
    ``q(x_s | x_0)``; the copies are not independent. Where the first is noise entirely, the second is clean.

    >>> from rdm.diffusion.noise import Absorbing
    >>> from rdm.diffusion.schedule import Linear
    >>> from rdm.vocab import Vocab
    >>> process = DiffusionProcess(Linear(num_steps=4), Absorbing(Vocab(size=9)))
    >>> noised = Complementary()(process, torch.tensor([[5, 6, 7]]))
    >>> noised.noisy.sum(0)
    tensor([1, 1, 1])
    """

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        t = self.steps(process, x0, generator)
        alpha = process.schedule.alpha(t)
        uniform = torch.rand(x0.shape, dtype=torch.float64, device=x0.device, generator=generator)
        kept, learnable = uniform < alpha[:, None], process.learnable(x0)
        first, second = (
            torch.where(noised & learnable, process.noise.sample(x0, generator), x0) for noised in (~kept, kept)
        )
        return [(first, t), (second, process.step_keeping(1 - alpha))]


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
        noised = random_subset(uniform[:, 1:], learnable, count)
        t = (process.num_steps * count / length.clamp(min=1)).ceil().long()
        return [(torch.where(noised, process.noise.sample(x0, generator), x0), t)]
