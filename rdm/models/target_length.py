"""How the target length is added to the decoder input of a denoiser, besides the padding mask.

A position counted from the start does not say how far away the end is. Config group: ``diffusion/target_length``.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from rdm.describe import Described


class TargetLength(Described, nn.Module, ABC):
    """A vector added to the decoder input at every position."""

    @abstractmethod
    def forward(self, real: Tensor) -> Tensor:
        """Return vectors ``[R, N, D]`` or broadcastable to it; ``real [R, N]`` is false at padding, on the right."""


class Untold(TargetLength):
    """Adds nothing: the length is visible as padding only.

    >>> Untold()(torch.ones(2, 3, dtype=torch.bool)).shape
    torch.Size([2, 1, 1])
    """

    def forward(self, real: Tensor) -> Tensor:
        return torch.zeros(len(real), 1, 1, device=real.device)


class VectorTable(nn.Module):
    """A learned vector for each position or length; 0 at first, so that an initialised network is not disturbed.

    Args:
        dim: width of the network.
        max_length: maximum number of tokens in a target, without ``<bos>`` and ``<eos>``.
    """

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(max_length + 2, dim))  # <bos> and <eos>
        self.scale = math.sqrt(dim)  # as large as token embeddings in an optimiser step

    def look_up(self, numbers: Tensor) -> Tensor:
        """Return vectors ``[..., D]`` for ``numbers [...]``."""
        return nn.functional.embedding(numbers, self.table) * self.scale


class PositionsFromEnd(VectorTable, TargetLength):
    """Adds a learned position that counts from the end of the target: 0 for ``<eos>``, 1 for the token before it.

    Args:
        dim: width of the network.
        max_length: maximum number of tokens in a target, without ``<bos>`` and ``<eos>``.

    >>> PositionsFromEnd(dim=8, max_length=4)(torch.tensor([[True, True, True, False]])).shape
    torch.Size([1, 4, 8])
    """

    def forward(self, real: Tensor) -> Tensor:
        last = real.sum(1, keepdim=True) - 1
        return self.look_up((last - torch.arange(real.shape[1], device=real.device)).clamp(min=0))


class LengthVector(VectorTable, TargetLength):
    """Adds one learned vector for the length of the target, the same at every position.

    >>> LengthVector(dim=8, max_length=4)(torch.tensor([[True, True, True, False]])).shape
    torch.Size([1, 1, 8])
    """

    def forward(self, real: Tensor) -> Tensor:
        return self.look_up(real.sum(1, keepdim=True) - 1)
