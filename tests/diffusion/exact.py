"""Discrete diffusion by brute force: transition matrices, products and Bayes' rule, in float64 NumPy.

The reference values (``alpha_t``, noise probabilities, all distributions) are computed here from their definitions. The
objects under test are built from ``rdm``, but none of its formulas is used.
"""

import math

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from rdm.diffusion import noise, schedule
from rdm.diffusion.process import DiffusionProcess
from rdm.vocab import Vocab

VOCAB = Vocab(size=6, pad=0, mask=1, bos=0, eos=0, unk=0)
SENTENCE_VOCAB = Vocab(size=9)  # pad 0, mask 1, bos 2, eos 3, unk 4, ordinary 5..8
ORDINARY = (2, 3, 4, 5)
STEPS = 6
COUNTS = torch.tensor([50, 7, 1, 8, 27, 64])  # ** (1 / 1.5): 1, 4, 9, 16 for the ordinary ids
TABLE = (1.0, 0.95, 0.8, 0.5, 0.3, 0.1, 0.02)  # does not reach 0, unlike the other schedules

NOISES = ("absorbing", "uniform", "unigram", "mixture")
SCHEDULES = ("linear", "cosine", "sqrt", "table")

PROBS = {
    "absorbing": np.array([0, 1, 0, 0, 0, 0]),
    "uniform": np.array([0, 0, 1, 1, 1, 1]) / 4,
    "unigram": np.array([0, 0, 1, 4, 9, 16]) / 30,
    "mixture": np.array([0, 4, 1, 1, 1, 1]) / 8,
}


def alphas(name: str, steps: int = STEPS) -> list[float]:
    """``alpha_0 .. alpha_T`` from the definitions."""

    def cosine(t: int) -> float:
        return math.cos((t / steps + 0.008) / 1.008 * math.pi / 2) ** 2

    return {
        "linear": [(steps - t) / steps for t in range(steps + 1)],
        "cosine": [cosine(t) / cosine(0) for t in range(steps + 1)],
        "sqrt": [1 - math.sqrt(t / steps) for t in range(steps + 1)],
        "table": [*TABLE[:steps], TABLE[-1]],
    }[name]


def build_noise(name: str, vocab: Vocab = VOCAB, counts: Tensor = COUNTS) -> noise.Noise:
    """Build the noise of that name, fitted and ready to sample."""
    kind = {"absorbing": noise.Absorbing, "uniform": noise.Uniform, "unigram": noise.Unigram, "mixture": noise.Mixture}
    built = kind[name](vocab)
    built.fit(lambda: counts)
    return built


def build_schedule(name: str, steps: int = STEPS) -> schedule.Schedule:
    """Build the schedule of that name."""
    if name == "table":
        return schedule.Table(alphas("table", steps))
    return {"linear": schedule.Linear, "cosine": schedule.Cosine, "sqrt": schedule.Sqrt}[name](steps)


def build_process(noise_name: str, schedule_name: str, steps: int = STEPS) -> DiffusionProcess:
    """Build a process over :data:`VOCAB`."""
    return DiffusionProcess(build_schedule(schedule_name, steps), build_noise(noise_name))


class Chain:
    """The forward Markov chain of one token, as explicit matrices ``[from, to]``."""

    def __init__(self, alphas: list[float], noise: np.ndarray) -> None:
        self.alphas, self.noise = alphas, noise
        self.products: dict[tuple[int, int], np.ndarray] = {}

    @classmethod
    def of(cls, noise_name: str, schedule_name: str, steps: int = STEPS) -> "Chain":
        return cls(alphas(schedule_name, steps), PROBS[noise_name])

    @property
    def steps(self) -> int:
        return len(self.alphas) - 1

    def step(self, t: int) -> np.ndarray:
        """``P_t = beta_t I + (1 - beta_t) 1 q^T``."""
        beta = self.alphas[t] / self.alphas[t - 1]
        return beta * np.eye(len(self.noise)) + (1 - beta) * np.outer(np.ones(len(self.noise)), self.noise)

    def between(self, s: int, t: int) -> np.ndarray:
        """``q(x_t | x_s)``: the product of the steps."""
        if (s, t) not in self.products:
            self.products[s, t] = np.eye(len(self.noise)) if s == t else self.between(s, t - 1) @ self.step(t)
        return self.products[s, t]

    def reachable(self, x0: int, t: int) -> list[int]:
        """The values ``x_t`` can take."""
        return np.flatnonzero(self.between(0, t)[x0]).tolist()

    def posterior(self, x0: int, x_t: int, t: int, s: int) -> np.ndarray:
        """``q(x_s | x_t, x_0)`` by Bayes' rule, ``[V]``."""
        return self.model(np.eye(len(self.noise))[x0], x_t, t, s)

    def model(self, f: np.ndarray, x_t: int, t: int, s: int) -> np.ndarray:
        """``p(x_s | x_t)``, ``[V]``: the posterior for ``x_0`` distributed as ``f``."""
        joint = (f @ self.between(0, s)) * self.between(s, t)[:, x_t]
        return joint / joint.sum()


def kl(p: np.ndarray, q: np.ndarray) -> float:
    """``KL(p || q)``, with ``0 log 0 = 0``."""
    support = p > 0
    return float(np.sum(p[support] * np.log(p[support] / q[support])))


def random_denoiser(seed: int, shape: tuple[int, ...] = (VOCAB.size,)) -> np.ndarray:
    """A table of random ``f``, ``[*shape, V]``, with mass on the ordinary ids only."""
    table = np.zeros((*shape, VOCAB.size))
    table[..., ORDINARY] = np.random.default_rng(seed).dirichlet(np.ones(len(ORDINARY)), size=shape)
    return table


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def count(draws: Tensor, size: int) -> np.ndarray:
    """Count each of ``size`` values in each row of ``draws [R, N]``: ``[R, size]``."""
    offset = torch.arange(len(draws))[:, None] * size
    return (draws + offset).flatten().bincount(minlength=len(draws) * size).view(len(draws), size).numpy()


def assert_drawn_from(counts: np.ndarray, probs: np.ndarray, level: float = 1e-3) -> None:
    """Chi-square test of the rows of ``counts`` against the rows of ``probs``, jointly and for the worst row.

    A value of probability zero (or nearly so) must not occur.
    """
    statistics, freedoms = [], []
    for observed, prob in zip(counts, probs, strict=True):
        expected = prob / prob.sum() * observed.sum()
        assert not observed[expected < 1e-6].any(), f"drew values of probability zero: {observed}, expected {expected}"
        # The usual rule: cells with few expected counts are merged into the largest.
        large, largest = expected >= 5, expected.argmax()
        cells, means = observed.astype(float), expected.copy()
        cells[largest] += observed[~large].sum()
        means[largest] += expected[~large].sum()
        statistics.append(np.sum((cells[large] - means[large]) ** 2 / means[large]))
        freedoms.append(large.sum() - 1)
    tested = np.array(freedoms) > 0
    if not tested.any():
        return
    statistics, freedoms = np.array(statistics)[tested], np.array(freedoms)[tested]
    together = stats.chi2.sf(statistics.sum(), freedoms.sum())
    worst = stats.chi2.sf(statistics, freedoms).min() * tested.sum()
    assert together > level, f"all rows together: p = {together:.2g}"
    assert worst > level, f"worst row: corrected p = {worst:.2g}"
