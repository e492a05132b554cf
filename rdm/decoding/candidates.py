"""Length candidates: which target lengths to decode, and which of the decoded candidates to return."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


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


def best_candidate(scores: Tensor, count: int) -> Tensor:
    """Row index ``[B]`` of the best of each sentence's ``count`` consecutive rows; ``scores`` is ``[B * count]``."""
    table = scores.view(-1, count)
    return torch.arange(len(table), device=scores.device) * count + table.argmax(1)
