"""Losses over a vocabulary with gradients in closed form, computed in chunks of rows.

With plain autograd, a loss keeps several tensors of the size of the logits for the backward pass. Here loss and
gradient are computed in one pass over chunks that fit into the cache, and only the gradient is kept.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LossAndGradient = Callable[[Tensor, slice], tuple[Tensor, Tensor]]
"""``(logits [C, V] in float32, row slice) -> (losses [C], their gradients with respect to the logits [C, V])``."""

CPU_CHUNK, GPU_CHUNK = 2**18, 2**24
"""Logits per chunk: as many as fit into a CPU cache, and enough to keep a GPU busy."""


def rows_at_once(logits: Tensor) -> int:
    """Return the number of rows of ``logits [P, V]`` in a chunk."""
    return max((CPU_CHUNK if logits.device.type == "cpu" else GPU_CHUNK) // logits.shape[1], 1)


def in_chunks(logits: Tensor, loss_and_gradient: LossAndGradient) -> Tensor:
    """Return the losses ``[P]`` of the rows of ``logits [P, V]``."""
    return _InChunks.apply(logits, loss_and_gradient)


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss_and_gradient: LossAndGradient) -> Tensor:
        losses = torch.empty(len(logits), device=logits.device)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        size = rows_at_once(logits)
        with torch.autocast(logits.device.type, enabled=False):
            for start in range(0, len(logits), size):
                rows = slice(start, start + size)
                losses[rows], slope = loss_and_gradient(logits[rows].float(), rows)
                if gradient is not None:
                    gradient[rows] = slope
        ctx.save_for_backward(gradient)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        # In place to save memory; PyTorch then raises on a second backward pass through the same graph.
        return gradient.mul_(upstream[:, None]), None


def smoothed_cross_entropy(logits: Tensor, target: Tensor, allowed: Tensor, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy ``[P]`` for each row of logits.

    The target distribution is ``(1 - smoothing) onehot(target) + smoothing * uniform(allowed)``.

    Args:
        logits: ``[P, V]``.
        target: ``[P]`` ids.
        allowed: ``[V]`` bool, the ids that share the smoothing mass.
        smoothing: in ``[0, 1)``.

    >>> smoothed_cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]), torch.ones(4), smoothing=0.1)
    tensor([1.3863, 1.3863])
    """
    spread = smoothing / allowed.sum() * allowed.float()

    def loss_and_gradient(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        index = target[rows, None]
        log_probs = logits.log_softmax(-1)
        losses = (smoothing - 1.0) * log_probs.gather(1, index).squeeze(1)
        if smoothing > 0:
            losses = losses - log_probs @ spread
        slope = log_probs.exp_()
        if smoothing > 0:
            slope -= spread
        # 1.0, not 1: with an integer smoothing of 0 the values would be integers, which scatter_add_ refuses.
        return losses, slope.scatter_add_(1, index, torch.full(index.shape, smoothing - 1.0, device=index.device))

    return in_chunks(logits, loss_and_gradient)
