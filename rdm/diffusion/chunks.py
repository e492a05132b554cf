"""Losses over the vocabulary with a gradient in closed form, a few rows at a time.

Left to autograd, a loss keeps several tensors of the size of the logits for the backward pass. Here loss and gradient
come out of one pass over rows that fit into the cache, and only the gradient is kept.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LossAndGradient = Callable[[Tensor, slice], tuple[Tensor, Tensor]]
"""``(logits [C, V] in float32, which rows) -> (losses [C], their derivative by the logits [C, V])``."""

CACHE, BUSY = 2**18, 2**24
"""Logits looked at at once: what fits into the cache of a CPU, and what keeps a GPU busy."""


def rows_at_once(logits: Tensor) -> int:
    """How many rows of ``logits [P, V]`` to look at together."""
    return max((CACHE if logits.device.type == "cpu" else BUSY) // logits.shape[1], 1)


def in_chunks(logits: Tensor, function: LossAndGradient) -> Tensor:
    """The losses ``[P]`` of all rows of ``logits [P, V]``."""
    return _InChunks.apply(logits, function)


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, function: LossAndGradient) -> Tensor:
        losses = torch.empty(len(logits), device=logits.device)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        size = rows_at_once(logits)
        with torch.autocast(logits.device.type, enabled=False):
            for start in range(0, len(logits), size):
                rows = slice(start, start + size)
                losses[rows], slope = function(logits[rows].float(), rows)
                if gradient is not None:
                    gradient[rows] = slope
        ctx.save_for_backward(gradient)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        # In place, because it is large; a second backward pass through the same graph is then an error of PyTorch's.
        return gradient.mul_(upstream[:, None]), None
