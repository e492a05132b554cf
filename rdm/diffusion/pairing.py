"""How many noised copies of a sentence are trained on at once, and how they hang together.

:class:`Conditioned` is the paper's Algorithm 3; the others are the alternatives its official code offers for the
ablation. Each is called with the process and clean tokens ``[B, N]`` and returns a :class:`Corruption` of ``R = B *
copies`` rows, the copies of one sentence next to each other.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.diffusion.process import Corruption, DiffusionProcess


class Pairing(ABC):
    """Draws the steps and the noised copies of a batch."""

    def __call__(self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None = None) -> Corruption:
        copies, steps = zip(*self.draw(process, x0, generator), strict=True)
        x_t, t = torch.stack(copies, 1).flatten(0, 1), torch.stack(steps, 1).flatten()
        x0 = x0.repeat_interleave(len(copies), 0)
        return Corruption(x0=x0, x_t=x_t, t=t, learnable=process.learnable(x0))

    @abstractmethod
    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        """The copies ``[B, N]`` with their steps ``[B]``."""


def uniform_steps(process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None) -> Tensor:
    """``t ~ Uniform{1..T}``, one a sentence: ``[B]``."""
    return torch.randint(1, process.num_steps + 1, x0.shape[:1], device=x0.device, generator=generator)


class Single(Pairing):
    """One step, one copy (Algorithm 1)."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        t = uniform_steps(process, x0, generator)
        return [(process.corrupt(x0, t, generator), t)]


class Conditioned(Pairing):
    """Two steps ``s <= t``; ``x_s ~ q(x_s | x_t, x_0)``, or drawn independently where ``s = t`` (Algorithm 3)."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        first, second = uniform_steps(process, x0, generator), uniform_steps(process, x0, generator)
        s, t = torch.minimum(first, second), torch.maximum(first, second)
        x_t = process.corrupt(x0, t, generator)
        conditioned, fresh = process.step_posterior(x_t, x0, t, s, generator), process.corrupt(x0, s, generator)
        return [(torch.where((s == t)[:, None], fresh, conditioned), s), (x_t, t)]


class SameStep(Pairing):
    """Two independent copies at one step."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        t = uniform_steps(process, x0, generator)
        return [(process.corrupt(x0, t, generator), t), (process.corrupt(x0, t, generator), t)]


class TwoSteps(Pairing):
    """Two independent copies at two independent steps."""

    def draw(
        self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None
    ) -> list[tuple[Tensor, Tensor]]:
        single = Single()
        return single.draw(process, x0, generator) + single.draw(process, x0, generator)


class UniformMasks(Pairing):
    """One copy with exactly ``n ~ Uniform{1..N}`` of its ``N`` learnable tokens noised (CMLM).

    The step is the one at which a linear schedule has noised that share, ``t = ceil(T n / N)``.
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
