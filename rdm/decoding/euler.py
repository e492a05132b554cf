"""Euler sampling of the probability flow of Gaussian noise over embeddings, with a score from word probabilities."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from rdm.decoding.candidates import Selection
from rdm.decoding.gaussian import Observer, PointDecoding, Rounded
from rdm.diffusion.gaussian import nearest

Predict = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""``(x [R, N, E], t [R], guess [R, N, E] or None) -> logits [R, N, V]``."""


def interpolated_score(x: Tensor, probs: Tensor, embeddings: Tensor, t: float) -> Tensor:
    """Return ``(x0_hat - x) / t^2`` with ``x0_hat = sum_w p(w) E(w)``, the score of the noised points (CDCD).

    Args:
        x: ``[..., E]`` points with noise of standard deviation ``t``.
        probs: ``[..., V]`` posterior of the words.
        embeddings: ``[V, E]``.
        t: noise level.

    >>> interpolated_score(torch.zeros(2), torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [1.0, 2.0]]), t=2.0)
    tensor([0.2500, 0.2500])
    """
    return (probs @ embeddings - x) / t**2


class EulerSampler(PointDecoding):
    """A decoding strategy for CDCD, without a model: Euler steps of ``dx = -t score dt`` from noise.

    Each prediction of ``x_0`` is the input of the next (self-conditioning). The last prediction gives the words.

    Args:
        name: name of the strategy in result rows.
        steps: number of iterations; the levels of noise are those of the warped time.
        samples: number of candidates per source, each with independent initial noise.
        selection: which candidate is returned; by default the one with the highest score.

    >>> print(EulerSampler("cdcd", steps=200))
    cdcd, 200 iterations
    """

    def __init__(self, name: str, steps: int = 200, samples: int = 1, selection: Selection | None = None) -> None:
        super().__init__(name, steps, samples, selection)

    @torch.inference_mode()
    def run(
        self,
        predict: Predict,
        embeddings: Tensor,
        noise: Tensor,
        levels: Callable[[Tensor], Tensor],
        observer: Observer | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return words ``[R, N]`` and the last logits ``[R, N, V]``, from ``noise [R, N, E]`` of variance 1.

        ``levels`` maps the share ``u`` of the warped time, from 1 down to 0, to the noise level ``t``.
        """
        times = levels(torch.linspace(1, 0, self.steps + 1, device=noise.device)).tolist()
        x, guess = times[0] * noise, None
        logits, tokens = torch.empty(0), nearest(x, embeddings)
        denoised = torch.zeros_like(tokens, dtype=torch.bool)
        for iteration, (t, s) in enumerate(pairwise(times), 1):
            logits = predict(x, torch.full(x.shape[:1], t, device=x.device), guess).to(embeddings.dtype)
            log_probs = logits.log_softmax(-1)
            probs = log_probs.exp()
            guess = probs @ embeddings
            x = x - t * interpolated_score(x, probs, embeddings, t) * (s - t)
            if observer is not None:
                scores, words = log_probs.max(-1)
                before = Rounded(tokens, denoised, scores)
                tokens = words if iteration == self.steps else nearest(x, embeddings)
                denoised = tokens == words
                observer(before, Rounded(tokens, denoised, scores))
        return logits.argmax(-1), logits
