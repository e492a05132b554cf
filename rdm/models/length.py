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
        return self.score(self.features(states, mask))

    def features(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return what the last layer reads: the mean ``[B, D]`` of the states."""
        weights = mask / mask.sum(1, keepdim=True)
        return (states * weights[..., None]).sum(1)


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


class PooledLengthHead(SourceLengthHead):
    """Two layers on the mean and the sum of the encoder states; a sum can count, as each source token adds its share.

    ``logits = W2 gelu(W1 [mean, sum / sqrt(max_length)]) + table[source length]``.

    >>> PooledLengthHead(dim=8, max_length=4)(torch.zeros(2, 3, 8), torch.ones(2, 3, dtype=torch.bool)).shape
    torch.Size([2, 5])
    """

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__(2 * dim, max_length)
        self.hidden = nn.Linear(2 * dim, 2 * dim)
        self.scale = max_length**-0.5

    def features(self, states: Tensor, mask: Tensor) -> Tensor:
        total = (states * mask[..., None]).sum(1)
        pooled = torch.cat([total / mask.sum(1, keepdim=True), self.scale * total], 1)
        return nn.functional.gelu(self.hidden(pooled))
