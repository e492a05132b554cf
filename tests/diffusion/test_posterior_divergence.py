"""The posterior divergence with its gradient in closed form against autograd over dense posteriors."""

from itertools import product

import pytest
import torch
from torch import Tensor

from rdm import cross_entropy
from rdm.diffusion.objective import posterior_divergence
from rdm.diffusion.process import DiffusionProcess
from rdm.models.network import BARRED
from tests.diffusion.exact import NOISES, SCHEDULES, STEPS, VOCAB, build_process, seeded
from tests.test_cross_entropy import gradient


def dense_divergence(logits: Tensor, x_t: Tensor, x0: Tensor, t: Tensor, process: DiffusionProcess) -> Tensor:
    """``sum_k true_k log(true_k / model_k)`` of two dense posteriors, differentiated by autograd."""
    clean = torch.full_like(logits, float("-inf")).scatter(1, x0[:, None], 0.0)
    true = process.posterior_log_probs(x_t, clean, t, t - 1)
    model = process.posterior_log_probs(x_t, logits.log_softmax(-1), t, t - 1)
    return torch.where(true.isinf(), 0.0, true.exp() * (true - model)).sum(1)


@pytest.mark.parametrize("scale", [1.0, 30.0], ids=["mild", "sharp"])
@pytest.mark.parametrize(("noise", "schedule"), product(NOISES, SCHEDULES))
def test_posterior_divergence(noise: str, schedule: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK", 3 * VOCAB.size)  # chunks of three rows, and one row left over
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
