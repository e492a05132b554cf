"""Losses with a gradient in closed form against autograd over the dense formulas, whatever the size of the chunks."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rdm import cross_entropy
from rdm.cross_entropy import smoothed_cross_entropy
from rdm.diffusion.objective import posterior_divergence
from rdm.diffusion.process import DiffusionProcess
from tests.diffusion.exact import NOISES, SCHEDULES, STEPS, VOCAB, build_process, seeded

BARRED = -3e4


def gradient(losses: Tensor, logits: Tensor) -> Tensor:
    """Of a sum in which every row has a weight of its own."""
    weights = torch.linspace(0.5, 2.0, len(losses), dtype=losses.dtype)
    return torch.autograd.grad((weights * losses).sum(), logits)[0]


def dense_divergence(logits: Tensor, x_t: Tensor, x0: Tensor, t: Tensor, process: DiffusionProcess) -> Tensor:
    """``sum_k true_k log(true_k / model_k)`` of two dense posteriors, left to autograd."""
    clean = torch.full_like(logits, float("-inf")).scatter(1, x0[:, None], 0.0)
    true = process.posterior_log_probs(x_t, clean, t, t - 1)
    model = process.posterior_log_probs(x_t, logits.log_softmax(-1), t, t - 1)
    return torch.where(true.isinf(), 0.0, true.exp() * (true - model)).sum(1)


@pytest.mark.parametrize("scale", [1.0, 30.0], ids=["mild", "sharp"])
@pytest.mark.parametrize(("noise", "schedule"), product(NOISES, SCHEDULES))
def test_posterior_divergence(noise: str, schedule: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK", 3 * VOCAB.size)  # three rows a chunk, and one left over
    process, generator = build_process(noise, schedule), seeded(3)
    x0 = process.noise.learnable.nonzero().squeeze(1).repeat(25)[:70]
    t = torch.arange(70) % STEPS + 1
    x_t = process.corrupt(x0[:, None], t, generator).squeeze(1)
    exact = scale * torch.randn(70, VOCAB.size, generator=generator, dtype=torch.float64)
    exact = exact.masked_fill(~process.noise.learnable, BARRED).float().double().requires_grad_()
    logits = exact.detach().float().requires_grad_()
    expected, losses = (
        dense_divergence(exact, x_t, x0, t, process),
        posterior_divergence(logits, x_t, x0, t, process),
    )
    torch.testing.assert_close(losses.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient(losses, logits).double(), gradient(expected, exact), rtol=1e-3, atol=1e-5)


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


def test_no_rows() -> None:
    logits = torch.zeros(0, 7, requires_grad=True)
    losses = smoothed_cross_entropy(logits, torch.zeros(0, dtype=torch.long), torch.ones(7, dtype=torch.bool), 0.1)
    losses.sum().backward()
    assert losses.shape == (0,)
    assert logits.grad is not None


def test_a_second_backward_pass_is_refused() -> None:
    """The gradient is scaled in place: silently scaling it twice would be wrong."""
    logits = torch.randn(3, 7, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.tensor([1, 2, 3]), torch.ones(7, dtype=torch.bool), 0.0).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_mixed_precision_is_left_outside() -> None:
    """Under autocast the loss is computed in float32 all the same."""
    logits = torch.randn(5, 300, generator=seeded())
    target, allowed = torch.arange(5), torch.ones(300, dtype=torch.bool)
    plain = smoothed_cross_entropy(logits, target, allowed, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(smoothed_cross_entropy(logits, target, allowed, 0.1), plain)
