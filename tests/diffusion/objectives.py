"""Objectives, batches and predictions that the tests of objectives share."""

from itertools import product

import numpy as np
import torch
from torch import Tensor

from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.objective import Objective, ReweightedCrossEntropy, VariationalBound
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Linear, Original
from tests.diffusion.exact import (
    NOISES,
    SCHEDULES,
    VOCAB,
    seeded,
)

EVERY_CASE = list(product(NOISES, SCHEDULES))
BARRED = -3e4  # the logit of an id the model may not predict
SIMPLE = ReweightedCrossEntropy(Original(), label_smoothing=0.0)
OBJECTIVES = {
    "simple": SIMPLE,
    "smoothed": ReweightedCrossEntropy(Linear(), label_smoothing=0.1),
    "bound": VariationalBound(),
}


def as_logits(f: np.ndarray) -> Tensor:
    """Float32 logits, off by a constant from ``log f``, as a denoiser would give them."""
    return torch.from_numpy(np.where(f > 0, np.log(np.maximum(f, 1e-300)) + 0.7, BARRED)).float()


def corruption_of(process: DiffusionProcess, x0: list[list[int]], x_t: list[list[int]], t: list[int]) -> NoisedBatch:
    clean = torch.tensor(x0)
    return NoisedBatch(x0=clean, x_t=torch.tensor(x_t), t=torch.tensor(t), learnable=process.learnable(clean))


def loss_at(objective: Objective, process: DiffusionProcess, x0: int, x_t: int, t: int, f: np.ndarray) -> float:
    """The objective at a single position with the prediction ``f``."""
    noised = corruption_of(process, [[x0]], [[x_t]], [t])
    positions = objective.positions(noised)
    logits = as_logits(f).expand(int(positions.sum()), -1)
    return objective.losses(logits, noised.at(positions), process).sum().item()


def random_batch(process: DiffusionProcess, seed: int, rows: int = 12, columns: int = 7) -> tuple[NoisedBatch, Tensor]:
    """A noised batch, the last columns of some rows padding, with logits ``[R, N, V]`` for all of it."""
    generator = seeded(seed)
    x0 = torch.randint(2, VOCAB.size, (rows, columns), generator=generator)
    x0[::2, -2:] = VOCAB.pad
    t = torch.arange(rows) % process.num_steps + 1
    x_t = process.corrupt(x0, t, generator)
    logits = torch.randn(rows, columns, VOCAB.size, generator=generator)
    logits = logits.masked_fill(~process.noise.learnable, BARRED)
    return NoisedBatch(x0=x0, x_t=x_t, t=t, learnable=process.learnable(x0)), logits


def total(objective: Objective, noised: NoisedBatch, logits: Tensor, process: DiffusionProcess) -> Tensor:
    """The objective, with the logits at its positions."""
    positions = objective.positions(noised)
    return objective.losses(logits[positions], noised.at(positions), process).sum()
