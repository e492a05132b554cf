"""Cross-entropy with a gradient in closed form against autograd, for several chunk sizes."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rdm import cross_entropy
from rdm.cross_entropy import Projection, smoothed_cross_entropy
from rdm.models.network import BARRED
from tests.diffusion.exact import seeded


def gradient(losses: Tensor, logits: Tensor) -> Tensor:
    """Gradient of a weighted sum of the losses, with a different weight for every row."""
    weights = torch.linspace(0.5, 2.0, len(losses), dtype=losses.dtype)
    return torch.autograd.grad((weights * losses).sum(), logits)[0]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows_at_once", [1, 4, 100])
def test_smoothed_cross_entropy(smoothing: float, rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK", 12 * rows_at_once)
    allowed = torch.arange(12) > 3
    exact = torch.randn(10, 12, generator=seeded(), dtype=torch.float64).requires_grad_()
    target = torch.arange(10) % 8 + 4
    wanted = smoothing * allowed / allowed.sum() + (1 - smoothing) * functional.one_hot(target, 12)
    expected = -(wanted * exact.log_softmax(-1)).sum(1)
    logits = exact.detach().float().requires_grad_()
    losses = smoothed_cross_entropy(logits, target, allowed, smoothing)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient(losses, logits).double(), gradient(expected, exact), rtol=1e-4, atol=1e-6)


def test_empty_logits() -> None:
    logits = torch.zeros(0, 7, requires_grad=True)
    losses = smoothed_cross_entropy(logits, torch.zeros(0, dtype=torch.long), torch.ones(7, dtype=torch.bool), 0.1)
    losses.sum().backward()
    assert losses.shape == (0,)
    assert logits.grad is not None


def test_second_backward_pass_raises() -> None:
    """The gradient is scaled in place, so a second pass would be wrong."""
    logits = torch.randn(3, 7, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.tensor([1, 2, 3]), torch.ones(7, dtype=torch.bool), 0.0).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_loss_is_in_float32_under_autocast() -> None:
    logits = torch.randn(5, 300, generator=seeded())
    target, allowed = torch.arange(5), torch.ones(300, dtype=torch.bool)
    plain = smoothed_cross_entropy(logits, target, allowed, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(smoothed_cross_entropy(logits, target, allowed, 0.1), plain)


@pytest.mark.parametrize("barred", [None, BARRED], ids=["no id barred", "barred ids"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_smoothed_cross_entropy_of_each_id(smoothing: float, barred: float | None) -> None:
    """The cross-entropy against ``(1 - eps) onehot + eps uniform(allowed)``, written out id by id."""
    allowed = torch.tensor([False, False, True, True, False, True])
    logits = torch.randn(5, 6, generator=seeded())
    if barred is not None:
        logits[:, ~allowed] = barred
    target = torch.tensor([2, 3, 5, 2, 5])
    log_f = logits.double().log_softmax(1)
    expected = []
    for row, label in enumerate(target.tolist()):
        weights = dict.fromkeys((2, 3, 5), smoothing / 3)
        weights[label] += 1 - smoothing
        expected.append(-sum(weight * log_f[row, v].item() for v, weight in weights.items()))
    assert smoothed_cross_entropy(logits, target, allowed, smoothing).tolist() == pytest.approx(expected, rel=1e-5)


def test_barred_ids_have_no_mass() -> None:
    """Ids at the barred logit: probability exactly zero, no gradient, and a finite loss for any number of them."""
    allowed = torch.zeros(1_000, dtype=torch.bool)
    allowed[5:9] = True
    logits = torch.where(allowed, 0.0, BARRED).expand(2, -1).clone().requires_grad_()
    loss = smoothed_cross_entropy(logits, torch.tensor([5, 8]), allowed, 0.1)
    loss.sum().backward()
    assert (logits.softmax(1)[:, ~allowed] == 0).all()
    assert loss.tolist() == pytest.approx([np.log(4)] * 2, rel=1e-6)
    assert (logits.grad[:, ~allowed] == 0).all()


def projected(rows: int = 10, size: int = 12, width: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, output embedding, bias that bars the first four ids, and targets."""
    generator = seeded()
    states = torch.randn(rows, width, generator=generator).requires_grad_()
    weight = torch.randn(size, width, generator=generator).requires_grad_()
    bias = torch.where(torch.arange(size) < 4, BARRED, 0.0)
    return states, weight, bias, torch.arange(rows) % (size - 4) + 4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows_at_once", [1, 3, 100])
def test_projection_in_chunks_equals_the_logits(
    smoothing: float, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and both gradients, with a different weight for every row."""
    monkeypatch.setattr(cross_entropy, "PRODUCT_ROWS", rows_at_once)
    states, weight, bias, target = projected()
    upstream, results = torch.linspace(0.5, 2.0, len(states)), []
    for logits in (functional.linear(states, weight, bias), Projection(states, weight, bias)):
        losses = smoothed_cross_entropy(logits, target, bias == 0, smoothing)
        results.append((losses, *torch.autograd.grad((upstream * losses).sum(), (states, weight))))
    for plain, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, plain, rtol=1e-5, atol=1e-6)


def test_projection_holds_one_chunk_of_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of the forward or the backward pass is larger than a chunk, or than the weight."""
    monkeypatch.setattr(cross_entropy, "PRODUCT_ROWS", 4)
    states, weight, bias, target = projected(rows=64, size=500, width=3)

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            made = [each.numel() for each in tree_leaves(result) if isinstance(each, Tensor)]
            self.size = max([self.size, *made])
            return result

    with Largest() as largest:
        smoothed_cross_entropy(Projection(states, weight, bias), target, bias == 0, 0.1).sum().backward()
    assert largest.size == max(4 * 500, weight.numel()) == 2000
    with Largest() as largest:
        smoothed_cross_entropy(functional.linear(states, weight, bias), target, bias == 0, 0.1).sum().backward()
    assert largest.size == 64 * 500


def test_projection_under_autocast_is_a_product_in_half_precision() -> None:
    states, weight, bias, target = projected(rows=40, size=300, width=32)
    found = []
    for kind in (Projection, functional.linear):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = smoothed_cross_entropy(kind(states, weight, bias), target, bias == 0, 0.1)
        found.append((losses, *torch.autograd.grad(losses.sum(), (states, weight))))
    for chunked, plain in zip(*found, strict=True):
        assert chunked.dtype == plain.dtype == torch.float32
        torch.testing.assert_close(chunked, plain, rtol=2e-2, atol=2e-2)


def test_second_backward_pass_of_a_projection_is_computed_again() -> None:
    states, weight, bias, target = projected()
    loss = smoothed_cross_entropy(Projection(states, weight, bias), target, bias == 0, 0.1).sum()
    first, second = (torch.autograd.grad(loss, (states, weight), retain_graph=True) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
