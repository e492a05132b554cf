"""Length heads: predict the number of target tokens from the source. Config group: ``diffusion/length_head``."""

import torch
from torch import Tensor, nn

from rdm.describe import Described


class LengthHead(Described, nn.Module):
    """Mean of the encoder states and a linear layer with one class for each length ``0 .. max_length``.

    Args:
        dim: width of the encoder.
        max_length: the longest target, without ``<bos>`` and ``<eos>``.

    >>> LengthHead(dim=8, max_length=4)(torch.zeros(2, 3, 8), torch.ones(2, 3, dtype=torch.bool)).shape
    torch.Size([2, 5])
    """

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, max_length + 1)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return logits ``[B, max_length + 1]`` for states ``[B, S, D]``; ``mask [B, S]`` is false at padding."""
        weights = mask / mask.sum(1, keepdim=True)
        return self.score((states * weights[..., None]).sum(1))


class SourceLengthHead(LengthHead):
    """Adds logits that depend on the length of the source, which a mean over its states does not show.

    ``logits = W mean(states) + table[source length]``; the table is 0 at first. The source may be longer than
    any target: it then has the row of the longest.

    >>> SourceLengthHead(dim=8, max_length=4)(torch.zeros(2, 3, 8), torch.ones(2, 3, dtype=torch.bool)).shape
    torch.Size([2, 5])
    """

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__(dim, max_length)
        self.table = nn.Parameter(torch.zeros(max_length + 3, max_length + 1))  # <bos> and <eos>

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        lengths = mask.sum(1).clamp(max=len(self.table) - 1)
        return super().forward(states, mask) + nn.functional.embedding(lengths, self.table)
