"""Candidates: which target lengths are decoded, how many times each, and which decoded candidate is returned."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.decoding.bleu import pairwise_bleu
from rdm.describe import Described


class LengthChoice(Described, ABC):
    """Chooses the candidate lengths of a sentence from the logits of the length head; never 0."""

    @abstractmethod
    def __call__(self, logits: Tensor, count: int) -> Tensor:
        """Return lengths ``[B, count]``, the most likely first, from ``logits [B, L]`` of lengths ``0..L-1``."""


class TopLengths(LengthChoice):
    """Chooses the ``count`` most likely lengths.

    >>> TopLengths()(torch.tensor([[9.0, 1.0, 5.0, 3.0]]), count=2)
    tensor([[2, 3]])
    """

    def __call__(self, logits: Tensor, count: int) -> Tensor:
        return logits[:, 1:].topk(count, dim=-1).indices + 1


class NearLengths(LengthChoice):
    """Chooses the most likely length and its neighbours ``-1, +1, -2, +2 ...`` (the official code).

    >>> NearLengths()(torch.tensor([[9.0, 1.0, 5.0, 3.0]]), count=3)
    tensor([[2, 1, 3]])
    """

    def __call__(self, logits: Tensor, count: int) -> Tensor:
        offsets = torch.tensor([(i + 1) // 2 * (-1) ** i for i in range(count)], device=logits.device)
        best = logits[:, 1:].argmax(-1, keepdim=True) + 1
        return (best + offsets).clamp(1, logits.shape[-1] - 1)


def samples_per_length(samples: int, lengths: int) -> list[int]:
    """Distribute ``samples`` evenly over up to ``lengths`` lengths.

    >>> samples_per_length(10, 3), samples_per_length(1, 3)
    ([3, 3, 4], [1])
    """
    used = min(samples, lengths)
    return [(i + 1) * samples // used - i * samples // used for i in range(used)]


class Selection(Described, ABC):
    """Chooses one of the ``m`` candidates of every source."""

    @abstractmethod
    def __call__(self, tokens: Tensor, text: Tensor, scores: Tensor) -> Tensor:
        """Return the index ``[B]`` of the candidate to return.

        Args:
            tokens: ``[B, m, N]`` ids.
            text: ``[B, m, N]`` bool, true at ordinary tokens.
            scores: ``[B, m]`` scores of the model.
        """


class BestScore(Selection):
    """Chooses the candidate with the highest score."""

    def __call__(self, tokens: Tensor, text: Tensor, scores: Tensor) -> Tensor:
        return scores.argmax(1)


class MinimumBayesRisk(Selection):
    """Chooses the candidate with the highest sum of sentence BLEU against all other candidates.

    BLEU is computed on tokens, not on words, because candidates are not detokenized at this point.
    """

    def __call__(self, tokens: Tensor, text: Tensor, scores: Tensor) -> Tensor:
        utility = pairwise_bleu(tokens, text)
        return (utility.sum(2) - utility.diagonal(dim1=1, dim2=2)).argmax(1)
