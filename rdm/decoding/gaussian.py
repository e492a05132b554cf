"""The sampling loop of Gaussian diffusion: points of noise in, words out."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rdm.decoding.base import IteratedDecoding
from rdm.decoding.candidates import BestScore, Selection
from rdm.decoding.schedule import steps_to_visit
from rdm.describe import in_words
from rdm.diffusion.gaussian import GaussianProcess, nearest, normal
from rdm.errors import require

Denoise = Callable[[Tensor, Tensor], Tensor]
"""``(z_t [R, N, E], t [R]) -> z_0 [R, N, E]``, the network's guess."""


@dataclass(frozen=True)
class Rounded:
    """Points as an observer sees them, each ``[R, N]``: the nearest words, where the network guesses these, too, and
    ``log p(w | z_0)`` of the words it guesses."""

    tokens: Tensor
    denoised: Tensor
    scores: Tensor

    @property
    def free(self) -> Tensor:
        return torch.ones_like(self.denoised)

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.tokens))

    @property
    def stored(self) -> Tensor:
        return self.scores


Observer = Callable[[Rounded, Rounded], None]
"""Called after every iteration with the points it started from and those it left; both have the scores of its guess."""


class GaussianSampler(IteratedDecoding):
    """A decoding strategy for points, with no model in it.

    Args:
        name: as it appears in results.
        steps: iterations ``M``; at most the number of steps the model was trained with.
        eta: 1 draws from the posterior of every step, 0 takes the deterministic step of DDIM.
        clamp: move every guess of ``z_0`` onto the nearest word before the step is taken (Diffusion-LM's trick).
        samples: candidates a source, each from noise of its own.
        selection: which of them to return; by default the one of highest score.
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
        require(steps >= 1, f"decoding.steps must be at least 1, got {steps}")
        require(0 <= eta <= 1, f"decoding.eta must lie between 0 (DDIM) and 1 (posterior), got {eta}")
        require(samples >= 1, f"decoding.samples must be at least 1, got {samples}")
        self.name, self.steps, self.eta, self.clamp, self.samples = name, steps, eta, clamp, samples
        self.selection = selection or BestScore()

    def describe(self) -> dict[str, Any]:
        return {
            "strategy": self.name,
            "steps": self.steps,
            "transition": f"Gaussian(eta={self.eta})",
            "proposal": f"Rounding(clamp={self.clamp})",
            "candidates": self.samples,
            "selection": in_words(self.selection),
        }

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
        """From ``z_T = noise [R, N, E]`` to words ``[R, N]`` of ``embeddings [V, E]``, and the last ``z_0`` guessed."""
        z = guess = noise
        if observer is not None:
            tokens = nearest(z, embeddings)
            denoised = torch.zeros_like(tokens, dtype=torch.bool)
        for t, s in pairwise(steps_to_visit(process.num_steps, self.steps)):
            guess = denoise(z, torch.full(z.shape[:1], t, device=z.device))
            z0 = embeddings[nearest(guess, embeddings)] if self.clamp else guess
            mean, std = process.back(z, z0, t, s, self.eta)
            z = mean + std * normal(mean, generator) if std > 0 else mean
            if observer is not None:
                guessed = nearest(z0, embeddings)
                log_probs = functional.linear(guess, embeddings).log_softmax(-1)
                scores = log_probs.gather(-1, guessed[..., None]).squeeze(-1)
                before, tokens = Rounded(tokens, denoised, scores), nearest(z, embeddings)
                denoised = tokens == guessed
                observer(before, Rounded(tokens, denoised, scores))
        return nearest(z, embeddings), guess
