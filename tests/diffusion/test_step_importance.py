"""Importance-sampled steps: unbiased by enumeration, drawn as stated, fitted to a known loss."""

import pytest
import torch
from torch import Tensor

from rdm.diffusion.step_importance import LossProportionalSteps, StepImportance, UniformSteps
from rdm.errors import UserError
from tests.decoding.helpers import seeded

T = 10


def fitted(bins: int = 4, uniform: float = 0.1) -> LossProportionalSteps:
    steps = LossProportionalSteps(bins, uniform)
    torch.nn.init.normal_(steps.log_losses, std=0.05, generator=seeded(1))
    return steps


def fine_grid(size: int = 200_000) -> Tensor:
    return (torch.arange(size, dtype=torch.float64) + 0.5) / size


@pytest.mark.parametrize("steps", [UniformSteps(), fitted(), fitted(bins=3), fitted(bins=10, uniform=0.5)])
def test_weighted_loss_has_the_expectation_of_uniform_steps(steps: StepImportance) -> None:
    """For every step, ``E[weight 1(t = k)] = 1 / T``; so for every loss, by linearity."""
    t, weights = steps.draw(fine_grid(), T)
    shares = torch.zeros(T + 1, dtype=torch.float64).index_add_(0, t, weights.double()) / len(t)
    assert shares[0] == 0
    torch.testing.assert_close(shares[1:], torch.full((T,), 1 / T, dtype=torch.float64), rtol=1e-3, atol=1e-4)


def test_steps_are_drawn_with_their_probabilities() -> None:
    steps = fitted()
    t, weights = steps.draw(fine_grid(), T)
    p = steps.probabilities(T)
    assert float(p.max() / p.min()) > 2  # else another seed
    torch.testing.assert_close(t.bincount(minlength=T + 1)[1:] / len(t), p.float(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(weights, 1 / (T * p[t - 1]))
    assert float(weights.max()) < 1 / 0.1
    assert steps.draw(torch.tensor([0.0, 0.9999999]), T)[0].tolist() == [1, T]


def known_loss(t: Tensor) -> Tensor:
    return 0.01 + (t / 100).square()


def test_fits_a_known_loss_and_lowers_the_variance() -> None:
    steps, generator = LossProportionalSteps(bins=20), seeded(2)
    optimizer = torch.optim.Adam(steps.parameters(), lr=2e-3)
    for _ in range(400):
        t, _ = steps.draw(torch.rand(64, generator=generator), 100)
        misfit = steps.misfit(t, known_loss(t), 100)
        assert misfit is not None
        optimizer.zero_grad()
        misfit.mean().backward()
        optimizer.step()
    loss = known_loss(torch.arange(1, 101).double())
    expected = 0.9 * loss / loss.sum() + 0.1 / 100
    assert float((steps.probabilities(100) - expected).abs().sum()) < 0.1
    u = torch.rand(20_000, generator=generator)
    uniform = known_loss(UniformSteps().draw(u, 100)[0])
    t, weights = steps.draw(u, 100)
    proportional = weights * known_loss(t)
    assert float(proportional.mean()) == pytest.approx(float(loss.mean()), rel=0.02)
    assert proportional.std() < uniform.std() / 3


def test_losses_get_no_gradient() -> None:
    losses = torch.ones(2, requires_grad=True)
    misfit = fitted().misfit(torch.tensor([1, 9]), losses, T)
    assert misfit is not None
    misfit.sum().backward()
    assert losses.grad is None
    assert UniformSteps().misfit(torch.tensor([1]), losses[:1], T) is None


def test_wrong_values_raise() -> None:
    with pytest.raises(UserError, match=r"system.steps.bins must be at least 1"):
        LossProportionalSteps(bins=0)
    with pytest.raises(UserError, match=r"system.steps.uniform must lie in \(0, 1\]"):
        LossProportionalSteps(uniform=0.0)
