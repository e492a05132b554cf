"""Gaussian diffusion against composed single steps, Bayes' rule and samples."""

import math

import pytest
import torch
from torch import Tensor

from rdm.diffusion.gaussian import GaussianProcess, nearest, normal
from rdm.diffusion.schedule import Linear, Schedule, Sqrt

STEPS = 12
SCHEDULES: dict[str, Schedule] = {"sqrt": Sqrt(STEPS, 1e-4), "linear": Linear(STEPS)}
STRIDES = [(1, 0), (2, 1), (7, 6), (STEPS, STEPS - 1), (7, 3), (STEPS, 4), (STEPS, 0)]
DRAWS = 200_000


@pytest.fixture(params=SCHEDULES)
def process(request: pytest.FixtureRequest) -> GaussianProcess:
    return GaussianProcess(SCHEDULES[request.param])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def step(process: GaussianProcess, t: int) -> float:
    """``beta_t``: one step is ``N(sqrt(beta_t) z_{t-1}, 1 - beta_t)``."""
    return float(process.alpha[t] / process.alpha[t - 1])


def kept(process: GaussianProcess, s: int, t: int) -> float:
    """The share of the variance kept from ``s`` to ``t``, as a product of steps."""
    return math.prod(step(process, u) for u in range(s + 1, t + 1))


def constant(value: float) -> Tensor:
    return torch.full((DRAWS, 1, 1), value, dtype=torch.float64)


def all_at(t: int) -> Tensor:
    return torch.full((DRAWS,), t)


def check_moments(draws: Tensor, mean: float, variance: float) -> None:
    """Sample mean and variance within five standard errors."""
    assert abs(float(draws.mean()) - mean) <= 5 * math.sqrt(variance / draws.numel())
    assert abs(float(draws.var()) - variance) <= 5 * variance * math.sqrt(2 / draws.numel())


def test_schedule_of_diffusion_lm() -> None:
    alpha = GaussianProcess(Sqrt(2000, 1e-4)).alpha
    assert alpha.dtype == torch.float64
    assert alpha[0] == 1
    for t in (1, 500, 1999):
        assert float(alpha[t]) == pytest.approx((1 - math.sqrt(t / 2000 + 1e-4)) / 0.99, rel=1e-12)
    assert (alpha.diff() < 0).all()
    assert 0 < alpha[2000] < 1e-6  # 1 - sqrt(1.0001) is below 0: the limit on a single step applies
    assert float(alpha[2000] / alpha[1999]) == pytest.approx(1e-3)


@pytest.mark.parametrize("t", [1, 2, 5, STEPS])
def test_marginal_is_the_composition_of_single_steps(process: GaussianProcess, t: int) -> None:
    """Mean and variance by recursion over the steps, and of draws of ``corrupt``."""
    factor, variance = 1.0, 0.0
    for u in range(1, t + 1):
        factor, variance = factor * math.sqrt(step(process, u)), step(process, u) * variance + 1 - step(process, u)
    check_moments(process.corrupt(constant(1.5), all_at(t), seeded(t)), 1.5 * factor, variance)


def test_no_noise_at_0_and_only_noise_at_the_last_step(process: GaussianProcess) -> None:
    z0 = normal(torch.empty(4, 3, 5), seeded())
    assert torch.equal(process.corrupt(z0, torch.zeros(4, dtype=torch.long), seeded(1)), z0)
    noise = normal(z0, seeded(1))
    gone = process.corrupt(z0, torch.full((4,), STEPS), seeded(1))
    torch.testing.assert_close(gone, noise, rtol=0, atol=0.05)
    assert not torch.equal(gone, noise)


def test_steps_are_set_per_row(process: GaussianProcess) -> None:
    z0, t = normal(torch.empty(3, 2, 4, dtype=torch.float64), seeded()), torch.tensor([1, STEPS, 5])
    together = process.corrupt(z0, t, seeded(1))
    noise = normal(z0, seeded(1))
    for row, alpha in enumerate(process.alpha[t].tolist()):
        expected = math.sqrt(alpha) * z0[row] + math.sqrt(1 - alpha) * noise[row]
        torch.testing.assert_close(together[row], expected)


def test_points_have_the_noise_of_one_step(process: GaussianProcess) -> None:
    check_moments(process.points(constant(1.5), seeded(5)), 1.5, 1 - float(process.alpha[1]))


@pytest.mark.parametrize(("t", "s"), STRIDES)
def test_posterior_is_bayes_rule(process: GaussianProcess, t: int, s: int) -> None:
    """The prior ``q(z_s | z_0)`` times the likelihood of ``z_t``, by adding precisions."""
    z0, z_t = normal(torch.empty(2, 6, 1, 1, dtype=torch.float64), seeded(t))
    alpha_s, beta = kept(process, 0, s), kept(process, s, t)
    mean, std = process.back(z_t, z0, t, s)
    if s == 0:
        assert std == 0
        assert torch.equal(mean, z0)
        return
    precision = 1 / (1 - alpha_s) + beta / (1 - beta)
    expected = math.sqrt(alpha_s) * z0 / (1 - alpha_s) + math.sqrt(beta) * z_t / (1 - beta)
    torch.testing.assert_close(mean, expected / precision)
    assert std**2 == pytest.approx(1 / precision)


@pytest.mark.parametrize(("t", "s"), [(7, 6), (7, 3)])
def test_posterior_of_simulated_chains(process: GaussianProcess, t: int, s: int) -> None:
    """In simulated chains, the residual of ``z_s`` is noise with the variance of the posterior."""
    z0, generator = constant(0.7), seeded(9)
    z_s = process.corrupt(z0, all_at(s), generator)
    z_t = z_s
    for u in range(s + 1, t + 1):
        z_t = math.sqrt(step(process, u)) * z_t + math.sqrt(1 - step(process, u)) * normal(z_t, generator)
    mean, std = process.back(z_t, z0, t, s)
    check_moments(z_s - mean, 0.0, std**2)
    correlation = torch.corrcoef(torch.stack([(z_s - mean).flatten(), z_t.flatten()]))[0, 1]
    assert abs(float(correlation)) < 5 / math.sqrt(DRAWS)


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("t", "s"), STRIDES)
def test_every_eta_has_the_same_marginals(process: GaussianProcess, t: int, s: int, eta: float) -> None:
    """The marginal variance after a reverse step is ``1 - alpha_s`` for every ``eta``."""
    alpha_t, alpha_s = float(process.alpha[t]), float(process.alpha[s])
    z0 = torch.tensor([[[0.4]]], dtype=torch.float64)

    def mean_at(eps: float) -> float:
        return float(process.back(math.sqrt(alpha_t) * z0 + math.sqrt(1 - alpha_t) * eps, z0, t, s, eta)[0])

    std = process.back(z0, z0, t, s, eta)[1]
    assert mean_at(0.0) == pytest.approx(math.sqrt(alpha_s) * 0.4)
    assert (mean_at(1.0) - mean_at(0.0)) ** 2 + std**2 == pytest.approx(1 - alpha_s, abs=1e-12)
    assert (std == 0) == (eta == 0 or s == 0)


def test_nearest_minimises_the_distance() -> None:
    z, embeddings = normal(torch.empty(4, 7, 5), seeded(0)), 2 * normal(torch.empty(50, 5), seeded(1))
    distances = (z[:, :, None] - embeddings).square().sum(-1)
    assert torch.equal(nearest(z, embeddings), distances.argmin(-1))


def test_embeddings_round_to_themselves() -> None:
    """A plain dot product would prefer long embeddings."""
    embeddings = normal(torch.empty(200, 8), seeded(2)) * torch.linspace(0.2, 5, 200)[:, None]
    assert torch.equal(nearest(embeddings, embeddings), torch.arange(200))
    assert not torch.equal((embeddings @ embeddings.T).argmax(1), torch.arange(200))
