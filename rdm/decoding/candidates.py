"""Candidates: which target lengths are decoded, how many times each, and which decoded candidate is returned."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from rdm.decoding.bleu import pairwise_bleu
from rdm.describe import Described
from rdm.errors import require


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


@dataclass(frozen=True)
class CandidateSet:
    """The ``m`` candidates decoded for each of ``B`` sources, as a :class:`Selection` sees them."""

    sources: Tensor  # [B, S] ids, with special symbols and padding
    tokens: Tensor  # [B, m, N] ids, with special symbols and padding
    text: Tensor  # [B, m, N] bool, true at ordinary tokens
    scores: Tensor  # [B, m] scores of the model
    length_log_probs: Tensor | None = None  # [B, m] log p(length | source); None without a length head


class Selection(Described, ABC):
    """Scores the ``m`` candidates of every source and chooses the best one.

    It is also the reward of a search (:class:`~rdm.decoding.search.Particles`).
    """

    needs_length_head = False  # True if it uses CandidateSet.length_log_probs
    calls = 0  # calls of the decoded network that scoring a candidate takes

    @abstractmethod
    def scores(self, candidates: CandidateSet) -> Tensor:
        """Return the score ``[B, m]`` of every candidate; larger is better."""

    def __call__(self, candidates: CandidateSet) -> Tensor:
        """Return the index ``[B]`` of the candidate to return."""
        return self.scores(candidates).argmax(1)


class BestScore(Selection):
    """Chooses the candidate with the highest score of the model."""

    def scores(self, candidates: CandidateSet) -> Tensor:
        return candidates.scores


class LengthAwareScore(Selection):
    """Chooses the candidate with the highest ``score + weight * log p(length | source)``.

    The score is a mean over tokens, which alone favours short outputs.

    Args:
        weight: 0 chooses by the score alone.

    >>> ids = torch.zeros(1, 2, 3, dtype=torch.long)
    >>> scores, lengths = torch.tensor([[-0.5, -0.6]]), torch.tensor([[-4.0, -1.0]])
    >>> candidates = CandidateSet(ids[:, 0], ids, ids == 0, scores, lengths)
    >>> LengthAwareScore(weight=0.0)(candidates), LengthAwareScore(weight=0.1)(candidates)
    (tensor([0]), tensor([1]))
    """

    needs_length_head = True

    def __init__(self, weight: float) -> None:
        valid = 0 <= weight < float("inf")  # false for NaN
        require(valid, f"decoding.selection.weight must be 0 or above, got {weight}")
        self.weight = weight

    def scores(self, candidates: CandidateSet) -> Tensor:
        assert candidates.length_log_probs is not None  # System.check refuses this selection without a length head
        return candidates.scores + self.weight * candidates.length_log_probs


class MinimumBayesRisk(Selection):
    """Chooses the candidate with the highest sum of sentence BLEU against all other candidates.

    BLEU is computed on tokens, not on words, because candidates are not detokenized at this point.
    """

    def scores(self, candidates: CandidateSet) -> Tensor:
        utility = pairwise_bleu(candidates.tokens, candidates.text)
        return utility.sum(2) - utility.diagonal(dim1=1, dim2=2)


def mean_score(scores: Tensor, included: Tensor) -> Tensor:
    """Return the mean ``[R]`` of ``scores [R, N]`` over the ``included [R, N]`` positions; 0 if there are none."""
    return torch.where(included, scores, 0.0).sum(1) / included.sum(1).clamp(min=1)
