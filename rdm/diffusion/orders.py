"""Orders in which the tokens of a text are denoised one by one. Config group: ``diffusion/order``.

Absorbing diffusion in continuous time denoises the tokens in a uniformly random order, and its bound is the mean over
orders of the autoregressive likelihood (Hoogeboom et al., 2022; Ou et al., 2025). Other orders are other forward
processes: masks that come from the right, for example.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.describe import Described
from rdm.errors import require


class DenoisingOrder(Described, ABC):
    """Draws when each token is denoised."""

    ahead_factor: float | None = None  # weight of the loss of tokens with equal numbers; None if numbers are distinct

    @abstractmethod
    def __call__(self, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return a number for each position of ``free [B, N]`` (bool): tokens with smaller ones are denoised first.

        Tokens with equal numbers are denoised at the same time, as a decoder with few calls does.
        """


class UniformOrder(DenoisingOrder):
    """Every order is equally likely, as in absorbing diffusion.

    >>> UniformOrder()(torch.ones(2, 3, dtype=torch.bool)).shape
    torch.Size([2, 3])
    """

    def __call__(self, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.rand(free.shape, dtype=torch.float64, device=free.device, generator=generator)


class LeftToRightOrder(UniformOrder):
    """Roughly from left to right: a token is denoised before all that are ``spread`` or more positions to its right.

    Args:
        spread: 1 is exactly left to right.

    >>> LeftToRightOrder(spread=1)(torch.ones(1, 4, dtype=torch.bool)).argsort(1)
    tensor([[0, 1, 2, 3]])
    """

    def __init__(self, spread: float) -> None:
        require(spread >= 1, f"diffusion.order.spread must be at least 1, got {spread}")
        self.spread = spread

    def __call__(self, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.arange(free.shape[1], device=free.device) + self.spread * super().__call__(free, generator)


class BlockOrder(UniformOrder):
    """Blocks from left to right, one for each of ``calls`` network calls; within a block every order is equally likely.

    The ``r``-th of ``N`` free tokens (from 0) is in block ``floor(r * calls / N)``. These are the tokens that
    ``decoding=rdm_commit ranking=left_to_right schedule=linear`` denoises in each of ``calls`` iterations, so training
    learns what this decoding asks for. A text of at most ``calls`` tokens is read exactly from left to right.

    Args:
        calls: number of blocks.

    >>> BlockOrder(calls=2)(torch.ones(1, 4, dtype=torch.bool)).argsort(1).div(2, rounding_mode="floor")
    tensor([[0, 0, 1, 1]])
    """

    def __init__(self, calls: int) -> None:
        require(calls >= 1, f"diffusion.order.calls must be at least 1, got {calls}")
        self.calls = calls

    def __call__(self, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
        rank, count = free.cumsum(1) - 1, free.sum(1, keepdim=True).clamp(min=1)
        return rank.clamp(min=0) * self.calls // count + super().__call__(free, generator)


class RandomBlockOrder(DenoisingOrder):
    """Blocks from left to right, of random sizes, whose tokens are denoised at the same time.

    Args:
        largest: the sizes ``1 .. largest`` are equally likely.
        ahead_factor: weight of the loss of tokens that are predicted at the same time as those before them.

    >>> RandomBlockOrder(largest=1, ahead_factor=0.1)(torch.ones(1, 4, dtype=torch.bool))
    tensor([[0, 1, 2, 3]])
    """

    def __init__(self, largest: int, ahead_factor: float) -> None:
        require(largest >= 1, f"diffusion.order.largest must be at least 1, got {largest}")
        valid = 0 < ahead_factor < float("inf")
        require(valid, f"diffusion.order.ahead_factor must be above 0, got {ahead_factor}")
        self.largest, self.ahead_factor = largest, ahead_factor

    def __call__(self, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
        sizes = torch.randint(1, self.largest + 1, free.shape, device=free.device, generator=generator)
        rank = (free.cumsum(1) - 1).clamp(min=0)
        return torch.searchsorted(sizes.cumsum(1), rank, right=True)
