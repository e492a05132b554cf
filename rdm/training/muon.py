"""Muon: momentum whose update is made orthogonal, for the weight matrices of hidden layers.

It computes the update of :class:`torch.optim.Muon`, with matrices of one shape stacked into one batch of products, one
iteration less, and support for sharded parameters (FSDP).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from rdm.training.setup import computes_in_bf16
from rdm.training.sharding import full_tensor

Coefficients = tuple[float, float, float]
"""``(a, b, c)`` of the odd polynomial ``a x + b x^3 + c x^5`` that one iteration applies to all singular values."""

MINIMAX: tuple[Coefficients, ...] = (
    (7.711, -22.1138, 16.2487),
    (4.1772, -3.5156, 0.7581),
    (4.1772, -3.5156, 0.7581),
    (3.3432, -2.5570, 0.5351),
)
"""Each minimises the largest ``|p(x) - 1|`` on the interval that the iterations before leave: [0.02, 1] for the first,
the lower end divided by the upper one at least 0.02. Together they map [0.001, 1] to [0.43, 1.62]. Five iterations with
the constant coefficients of torch map it to [0.47, 1.2]."""
MARGIN = 1.02
"""Singular values are divided by this: the polynomials grow fast above 1, and half precision rounds."""
SMALLEST = 1e-7


class Muon(Optimizer):
    """Steps along the orthogonal factor of the momentum, with decoupled weight decay.

        m <- momentum * m + (1 - momentum) * g
        w <- (1 - lr * weight_decay) * w - lr * sqrt(max(1, rows / columns)) * orthogonal(g + momentum * (m - g))

    The factor of the learning rate is that of ``torch.optim.Muon`` with
    ``adjust_lr_fn="original"``.

    Args:
        params: matrices, or groups of matrices.
        lr: learning rate.
        weight_decay: matrices shrink by ``lr * weight_decay`` of themselves in a step.
        momentum: of the gradients.
        coefficients: of the iterations of :func:`orthogonalize`.

    >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    >>> Muon([weight], lr=0.1).step()
    >>> weight.diagonal().lt(-0.04).all(), weight.fliplr().diagonal().abs().max() < 1e-3
    (tensor(True), tensor(True))
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        coefficients: Sequence[Coefficients] = MINIMAX,
    ) -> None:
        for name, value in {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"Invalid {name} value: {value}")
        # Plain tuples: checkpoints hold plain data only.
        triples = tuple((float(a), float(b), float(c)) for a, b, c in coefficients)
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "coefficients": triples}
        super().__init__(params, defaults)
        for parameter in (each for group in self.param_groups for each in group["params"]):
            if parameter.ndim != 2:
                raise ValueError(f"Muon updates matrices only, got a parameter of shape {tuple(parameter.shape)}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if not parameters:
            return
        gradients = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            if "momentum_buffer" not in self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        momenta = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = orthogonalize_all(torch._foreach_lerp(gradients, momenta, group["momentum"]), group["coefficients"])
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        for parameter, update in zip(parameters, updates, strict=True):
            rows, columns = parameter.shape
            parameter.add_(update, alpha=-group["lr"] * math.sqrt(max(1, rows / columns)))


def orthogonalize_all(matrices: Sequence[Tensor], coefficients: Sequence[Coefficients]) -> list[Tensor]:
    """Return the orthogonal factors of matrices, those of one shape (transposed or not) computed together.

    A sharded matrix is gathered on every rank, which computes the whole factor and keeps its own part.
    """
    batches: dict[tuple[int, int], list[int]] = defaultdict(list)
    gathered = [full_tensor(matrix) for matrix in matrices]
    wide = [matrix.T if matrix.shape[0] > matrix.shape[1] else matrix for matrix in gathered]
    for index, matrix in enumerate(wide):
        batches[matrix.shape[0], matrix.shape[1]].append(index)
    factors = list(wide)
    for indices in batches.values():
        for index, factor in zip(
            indices, orthogonalize(torch.stack([wide[i] for i in indices]), coefficients), strict=True
        ):
            factors[index] = factor.T if gathered[index].shape[0] > gathered[index].shape[1] else factor
    return [_sharded_like(factor, matrix) for factor, matrix in zip(factors, matrices, strict=True)]


def orthogonalize(matrices: Tensor, coefficients: Sequence[Coefficients] = MINIMAX) -> Tensor:
    """Return ``U p(S) V^T`` for matrices ``U S V^T`` of ``[K, M, N]``, ``M <= N``, by Newton-Schulz iterations.

    ``p``, the composition of the polynomials ``a x + b x^3 + c x^5``, is near 1 for the singular values of a matrix
    divided by its Frobenius norm:

        X <- a X + (b X X^T + c (X X^T)^2) X

    >>> orthogonalize(torch.diag(torch.tensor([3.0, 4.0]))[None]).diagonal(dim1=1, dim2=2).sub(1).abs().max() < 0.6
    tensor(True)
    """
    half = matrices.device.type != "cpu" or computes_in_bf16()
    x = matrices.to(torch.bfloat16 if half else torch.float32)
    x = x / (MARGIN * x.norm(dim=(1, 2), keepdim=True)).clamp(min=SMALLEST)
    for a, b, c in coefficients:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


def _sharded_like(full: Tensor, like: Tensor) -> Tensor:
    """Return this rank's part of ``full`` if ``like`` is sharded; nothing is sent: every rank has the whole tensor."""
    if not isinstance(like, DTensor):
        return full
    return distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)
