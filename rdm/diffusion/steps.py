"""How the steps of a training batch are drawn. Config group: ``diffusion/steps``."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.describe import Described
from rdm.diffusion.process import DiffusionProcess


class StepDraw(Described, ABC):
    """Draws a step in ``1..T`` for each sentence; the distribution of each single step is uniform."""

    @abstractmethod
    def __call__(self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return steps ``[B]`` for clean tokens ``x0 [B, N]``."""


class UniformSteps(StepDraw):
    """Draws ``t ~ Uniform{1..T}`` independently for each sentence."""

    def __call__(self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.randint(1, process.num_steps + 1, x0.shape[:1], device=x0.device, generator=generator)


class StratifiedSteps(StepDraw):
    """Draws one step in each of ``B`` equal parts of ``1..T``, in random order.

    ``t_i = 1 + floor(T (pi(i) + u_i) / B)`` with a random permutation ``pi`` and ``u_i ~ Uniform[0, 1)``. Every
    batch then contains all levels of noise, and the loss varies less from batch to batch. The parts are those of a
    micro-batch: ranks and accumulated micro-batches draw independently.

    >>> from rdm.diffusion.noise import Absorbing
    >>> from rdm.diffusion.schedule import Linear
    >>> from rdm.vocab import Vocab
    >>> process = DiffusionProcess(Linear(num_steps=4), Absorbing(Vocab(size=9)))
    >>> StratifiedSteps()(process, torch.zeros(4, 3, dtype=torch.long)).sort().values
    tensor([1, 2, 3, 4])
    """

    def __call__(self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None = None) -> Tensor:
        batch, device = len(x0), x0.device
        part = torch.randperm(batch, device=device, generator=generator)
        uniform = torch.rand(batch, dtype=torch.float64, device=device, generator=generator)
        return 1 + (process.num_steps * (part + uniform) / batch).long().clamp(max=process.num_steps - 1)
