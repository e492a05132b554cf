"""The sampling loop of Gaussian diffusion over embeddings."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from rdm.decoding.base import IteratedDecoding
from rdm.decoding.candidates import BestScore, Selection
from rdm.decoding.schedule import steps_to_visit
from rdm.diffusion.gaussian import GaussianProcess, nearest, normal
from rdm.errors import require

Denoise = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""``(z_t [R, N, E], t [R], guess [R, N, E] or None) -> z_0 [R, N, E]``, the prediction of the network."""


@dataclass(frozen=True)
class Rounded:
    """Points as an observer sees them, each field ``[R, N]``.

    A position counts as denoised if the nearest word is also the predicted one.
    """

    tokens: Tensor  # the nearest words
    denoised: Tensor
    scores: Tensor  # log p(w | z_0) of the predicted words

    @property
    def free(self) -> Tensor:
        return torch.ones_like(self.denoised)

    @property
    def scored(self) -> Tensor:
        return self.free

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.tokens))

    @property
    def stored(self) -> Tensor:
        return self.scores


Observer = Callable[[Rounded, Rounded], None]
"""Called after every iteration with its input and result; both hold the scores of this iteration's prediction."""


class PointDecoding(IteratedDecoding):
    """A decoding that starts from random points in the space of word embeddings, for targets of a fixed width.

    Args:
        name: name of the strategy in result rows.
        steps: number of iterations.
        samples: number of candidates per source, each with independent initial noise.
        selection: which candidate is returned; by default the one with the highest score.
    """

    def __init__(self, name: str, steps: int, samples: int, selection: Selection | None) -> None:
        require(steps >= 1, f"decoding.steps must be at least 1, got {steps}")
        require(samples >= 1, f"decoding.samples must be at least 1, got {samples}")
        self.name, self.steps, self.samples = name, steps, samples
        self.selection = selection or BestScore()

    @property
    def candidates(self) -> int:
        return self.samples


class GaussianSampler(PointDecoding):
    """A decoding strategy for Gaussian diffusion, without a model.

    Args:
        name: name of the strategy in result rows.
        steps: number of iterations ``M``; at most the number of steps the model was trained with.
        eta: 1 samples from the posterior of every step, 0 takes the deterministic step of DDIM.
        clamp: replace every predicted ``z_0`` by the nearest word embedding before the step (Diffusion-LM).
        samples: number of candidates per source, each with independent initial noise.
        selection: which candidate is returned; by default the one with the highest score.

    >>> print(GaussianSampler("diffuseq_ddim", steps=20, eta=0.0))
    diffuseq_ddim, 20 iterations
    """

    def __init__(
        self,
        name: str,
        steps: int,
        eta: float = 1.0,
        clamp: bool = True,
        samples: int = 1,
        selection: Selection | None = None,
    ) -> None:
        super().__init__(name, steps, samples, selection)
        require(0 <= eta <= 1, f"decoding.eta must lie between 0 (DDIM) and 1 (posterior), got {eta}")
        self.eta, self.clamp = eta, clamp

    @torch.inference_mode()
    def run(
        self,
        process: GaussianProcess,
        denoise: Denoise,
        embeddings: Tensor,
        noise: Tensor,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return words ``[R, N]`` of ``embeddings [V, E]`` and the last predicted ``z_0``, from ``z_T = noise``."""
        z, guess = noise, None
        if observer is not None:
            tokens = nearest(z, embeddings)
            denoised = torch.zeros_like(tokens, dtype=torch.bool)
        for t, s in pairwise(steps_to_visit(process.num_steps, self.steps)):
            guess = z0_hat = denoise(z, torch.full(z.shape[:1], t, device=z.device), guess)
            z0 = embeddings[nearest(z0_hat, embeddings)] if self.clamp else z0_hat
            mean, std = process.back(z, z0, t, s, self.eta)
            z = mean + std * normal(mean, generator) if std > 0 else mean
            if observer is not None:
                predicted = nearest(z0, embeddings)
                log_probs = functional.linear(z0_hat, embeddings).log_softmax(-1)
                scores = log_probs.gather(-1, predicted[..., None]).squeeze(-1)
                before, tokens = Rounded(tokens, denoised, scores), nearest(z, embeddings)
                denoised = tokens == predicted
                observer(before, Rounded(tokens, denoised, scores))
        return nearest(z, embeddings), z0_hat
