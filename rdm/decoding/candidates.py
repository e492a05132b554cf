"""Candidates: which target lengths to decode, how often each, and which of the decoded candidates to return."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.decoding.bleu import pairwise_bleu


class LengthChoice(ABC):
    """Picks ``count`` candidate lengths a sentence from the scores ``[B, L]`` of lengths ``0..L-1``; never 0."""

    @abstractmethod
    def __call__(self, logits: Tensor, count: int) -> Tensor:
        """Lengths ``[B, count]``, the preferred one first."""


class TopLengths(LengthChoice):
    """The ``count`` most likely lengths."""

    def __call__(self, logits: Tensor, count: int) -> Tensor:
        return logits[:, 1:].topk(count, dim=-1).indices + 1


class NearLengths(LengthChoice):
    """The most likely length and its neighbours ``-1, +1, -2, +2 ...`` (the official code)."""

    def __call__(self, logits: Tensor, count: int) -> Tensor:
        offsets = torch.tensor([(i + 1) // 2 * (-1) ** i for i in range(count)], device=logits.device)
        best = logits[:, 1:].argmax(-1, keepdim=True) + 1
        return (best + offsets).clamp(1, logits.shape[-1] - 1)


def share_out(samples: int, lengths: int) -> list[int]:
    """How many of ``samples`` each of the first lengths gets: 10 over 3 are 3, 3 and 4; 1 is one of the best length."""
    used = min(samples, lengths)
    return [(i + 1) * samples // used - i * samples // used for i in range(used)]


class Selection(ABC):
    """Picks one of the ``m`` candidates of every source."""

    @abstractmethod
    def __call__(self, tokens: Tensor, text: Tensor, scores: Tensor) -> Tensor:
        """Index ``[B]`` of the one to return.

        Args:
            tokens: ``[B, m, N]`` ids.
            text: ``[B, m, N]`` bool, true on ordinary tokens.
            scores: ``[B, m]`` by the model.
        """


class BestScore(Selection):
    """The candidate of the highest score."""

    def __call__(self, tokens: Tensor, text: Tensor, scores: Tensor) -> Tensor:
        return scores.argmax(1)


class MinimumBayesRisk(Selection):
    """The candidate most like the others: the highest sum of sentence BLEU with each of them as reference.

    BLEU counts tokens here, not words: the text of a candidate is not known yet.
    """

    def __call__(self, tokens: Tensor, text: Tensor, scores: Tensor) -> Tensor:
        utility = pairwise_bleu(tokens, text)
        return (utility.sum(2) - utility.diagonal(dim1=1, dim2=2)).argmax(1)
