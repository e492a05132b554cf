"""Losses over a vocabulary with gradients in closed form, computed in chunks of rows.

With plain autograd, a loss keeps several tensors of the size of the logits for the backward pass. Here loss and
gradient are computed in one pass over chunks that fit into the cache, and only the gradient is kept.

If even that is too much, a loss is given a :class:`Projection` instead of logits (``model.fused_cross_entropy=true``):
states that are yet to be multiplied with the output embedding. Logits and their gradient then exist for one chunk at a
time. The price is that the backward pass computes the logits again, a fourth product beside the three of the forward
and backward passes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

LossAndGradient = Callable[[Tensor, slice], tuple[Tensor, Tensor]]
"""``(logits [C, V] in float32, row slice) -> (losses [C], their gradients with respect to the logits [C, V])``."""

CPU_CHUNK, GPU_CHUNK = 2**18, 2**24
"""Logits per chunk: as many as fit into a CPU cache, and enough to keep a GPU busy."""
PRODUCT_ROWS = 256
"""Rows per chunk of a :class:`Projection`, at least: each chunk reads and writes the gradient of the weight."""


def rows_at_once(logits: Tensor) -> int:
    """Return the number of rows of ``logits [P, V]`` in a chunk."""
    return max((CPU_CHUNK if logits.device.type == "cpu" else GPU_CHUNK) // logits.shape[1], 1)


def chunks(count: int, size: int) -> list[slice]:
    """Return slices of at most ``size`` that cover ``count`` rows.

    In this form ``torch.compile`` has a graph for each number of slices, not for each number of rows.

    >>> chunks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    return [slice(size * number, size * (number + 1)) for number in range(-(-count // size))]


@dataclass(frozen=True)
class Projection:
    """Logits ``states [P, D] @ weight[V, D]^T + bias [V]`` that are not computed yet; no gradient flows to ``bias``.

    >>> Projection(torch.ones(3, 2), torch.ones(5, 2), torch.zeros(5)).logits().shape
    torch.Size([3, 5])
    """

    states: Tensor
    weight: Tensor
    bias: Tensor

    def __len__(self) -> int:
        return len(self.states)

    def detach(self) -> "Projection":
        """Return the projection without its history."""
        return Projection(self.states.detach(), self.weight.detach(), self.bias)

    def flatten(self, first: int, last: int) -> "Projection":
        """Flatten leading dimensions of ``states [..., D]``, as with a tensor of logits."""
        return Projection(self.states.flatten(first, last), self.weight, self.bias)

    def argmax(self, dim: int) -> Tensor:
        """Return the most likely id ``[P]`` of each row, computed in chunks; ``dim`` must be the last."""
        best = torch.empty(len(self), dtype=torch.long, device=self.states.device)
        for rows, logits in self.chunks(product_dtype(self.states)):
            best[rows] = logits.argmax(dim)
        return best

    def logits(self) -> Tensor:
        """Compute them all."""
        return functional.linear(self.states, self.weight, self.bias)

    def chunks(self, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """Yield chunks of rows with their logits in float32, from a product in ``dtype``."""
        kind = self.states.device.type
        size = PRODUCT_ROWS if kind == "cpu" else max(GPU_CHUNK // len(self.weight), PRODUCT_ROWS)
        weight, bias = self.weight.to(dtype), self.bias.to(dtype)
        with torch.autocast(kind, enabled=False):
            for rows in chunks(len(self), size):
                yield rows, functional.linear(self.states[rows].to(dtype), weight, bias).float()


def product_dtype(states: Tensor) -> torch.dtype:
    """Return the dtype in which ``states`` are multiplied: that of autocast, if it is enabled."""
    kind = states.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype


Logits = Tensor | Projection
"""``[P, V]``, computed or not."""


def compute_logits(logits: Logits) -> Tensor:
    """Return the logits ``[P, V]`` themselves.

    >>> compute_logits(torch.zeros(3, 5)).shape
    torch.Size([3, 5])
    """
    return logits.logits() if isinstance(logits, Projection) else logits


def in_chunks(logits: Logits, loss_and_gradient: LossAndGradient) -> Tensor:
    """Return the losses ``[P]`` of the rows of ``logits [P, V]``."""
    if isinstance(logits, Projection):
        return _ProjectedInChunks.apply(logits.states, logits.weight, logits.bias, loss_and_gradient)
    return _InChunks.apply(logits, loss_and_gradient)


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss_and_gradient: LossAndGradient) -> Tensor:
        losses = torch.empty(len(logits), device=logits.device)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        size = rows_at_once(logits)
        with torch.autocast(logits.device.type, enabled=False):
            for rows in chunks(len(logits), size):
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


class _ProjectedInChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, loss_and_gradient: LossAndGradient) -> Tensor:
        ctx.save_for_backward(states, weight, bias)
        ctx.loss_and_gradient, ctx.dtype = loss_and_gradient, product_dtype(states)
        losses = torch.empty(len(states), device=states.device)
        for rows, logits in Projection(states, weight, bias).chunks(ctx.dtype):
            losses[rows], _ = loss_and_gradient(logits, rows)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias = ctx.saved_tensors
        cast = weight.to(ctx.dtype)
        for_states = torch.empty_like(states)
        for_weight = torch.zeros(weight.shape, device=weight.device)
        for rows, logits in Projection(states, weight, bias).chunks(ctx.dtype):
            slope = ctx.loss_and_gradient(logits, rows)[1].mul_(upstream[rows, None]).to(ctx.dtype)
            for_states[rows] = (slope @ cast).to(states.dtype)
            if ctx.dtype == for_weight.dtype:
                for_weight.addmm_(slope.T, states[rows])
            else:
                for_weight += slope.T @ states[rows].to(ctx.dtype)
        return for_states, for_weight.to(weight.dtype), None, None


def smoothed_cross_entropy(logits: Logits, target: Tensor, allowed: Tensor, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy ``[P]`` for each row of logits.

    The target distribution is ``(1 - smoothing) onehot(target) + smoothing * uniform(allowed)``.

    Args:
        logits: ``[P, V]``, or the projection that gives them.
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
