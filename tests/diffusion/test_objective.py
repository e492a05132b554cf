"""Objectives against divergences enumerated outcome by outcome, and their weights."""

from itertools import product

import numpy as np
import pytest
import torch

from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.objective import ReweightedCrossEntropy, VariationalBound
from rdm.diffusion.reweighting import Constant, Linear, Original, Reweighting
from rdm.diffusion.schedule import Linear as LinearSchedule
from rdm.diffusion.schedule import Table
from rdm.errors import UserError
from tests.diffusion.exact import (
    ORDINARY,
    SCHEDULES,
    STEPS,
    VOCAB,
    Chain,
    alphas,
    build_process,
    build_schedule,
    kl,
    random_denoiser,
    seeded,
)
from tests.diffusion.objectives import (
    EVERY_CASE,
    SIMPLE,
    as_logits,
    loss_at,
    random_batch,
    total,
)

# --- The simplified loss (Eq. 8) is the divergence of the joint model (Eq. 7) ---


def joint_divergence(chain: Chain, x0: int, x_t: int, t: int, f: np.ndarray) -> float:
    """``KL(q(x_{t-1}, v | x_t, x_0) || p(x_{t-1}, v | x_t))`` over ``v = (v1, v2)`` and ``x_{t-1}``, oracle ``b_t``.

    ``p`` has ``f`` where ``q`` has ``x_0``. The probabilities of ``v`` are read off the posterior of the matrices: they
    are those with which Eq. 6, summed over ``v``, comes out as Bayes' rule.
    """
    eye, noise = np.eye(VOCAB.size), chain.noise
    interpolated = chain.step(t)[x_t]  # q_noise(x_t) = beta_t x_t + (1 - beta_t) q_noise
    posterior = chain.posterior(x0, x_t, t, t - 1)
    denoised = x_t == x0
    if denoised:
        lambda1, lambda2 = (posterior[x0] - noise[x0]) / (1 - noise[x0]), 0.3  # v2 is not used: any probability will do
    else:
        lambda1, lambda2 = 0.3, (posterior[x0] - interpolated[x0]) / (1 - interpolated[x0])
    q, p = np.zeros((2, 2, VOCAB.size)), np.zeros((2, 2, VOCAB.size))
    for v1, v2 in product((0, 1), repeat=2):
        weight = (lambda1 if v1 else 1 - lambda1) * (lambda2 if v2 else 1 - lambda2)
        if denoised:
            q[v1, v2] = p[v1, v2] = weight * (v1 * eye[x_t] + (1 - v1) * noise)
        else:
            q[v1, v2] = weight * (v2 * eye[x0] + (1 - v2) * interpolated)
            p[v1, v2] = weight * (v2 * f + (1 - v2) * interpolated)
    np.testing.assert_allclose(q.sum((0, 1)), posterior, atol=1e-9)
    return kl(q, p)


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_simple_loss_is_the_joint_divergence(noise: str, schedule: str) -> None:
    """At every ``t >= 2``, for every ``x_0`` and every possible ``x_t``, hence also in expectation."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    f = random_denoiser(1)
    for t, x0 in product(range(2, STEPS + 1), ORDINARY):
        marginal, left, right = chain.between(0, t)[x0], 0.0, 0.0
        for x_t in chain.reachable(x0, t):
            simple = loss_at(SIMPLE, process, x0, x_t, t, f[x_t])
            exact = joint_divergence(chain, x0, x_t, t, f[x_t])
            assert simple == pytest.approx(exact, rel=1e-5, abs=1e-6), (x0, x_t, t)
            assert (simple == 0) == (x_t == x0)
            left, right = left + marginal[x_t] * simple, right + marginal[x_t] * exact
        assert left == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_mean_simple_loss_of_samples(noise: str, schedule: str) -> None:
    """The mean over tokens noised by ``corrupt`` is the expected divergence, within five standard errors."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    f, size = random_denoiser(2), 5_000
    logits = as_logits(f)
    for t, x0 in ((2, 3), (STEPS // 2, 5), (STEPS, 2)):
        clean, steps = torch.full((1, size), x0), torch.tensor([t])
        drawn = process.corrupt(clean, steps, seeded(t))
        noised = NoisedBatch(x0=clean, x_t=drawn, t=steps, learnable=process.learnable(clean))
        mean = total(SIMPLE, noised, logits[drawn], process).item() / size
        marginal = chain.between(0, t)[x0]
        losses = np.zeros(VOCAB.size)
        for x_t in chain.reachable(x0, t):
            losses[x_t] = joint_divergence(chain, x0, x_t, t, f[x_t])
        expected = marginal @ losses
        error = np.sqrt(max(marginal @ losses**2 - expected**2, 0) / size)
        assert mean == pytest.approx(expected, rel=1e-5, abs=5 * error + 1e-6)


# --- The vanilla bound ---


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_bound_is_the_divergence_of_the_posteriors(noise: str, schedule: str) -> None:
    """``KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t))``, ``p`` from the matrices, at every step and state."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    f = random_denoiser(3)
    for t, x0 in product(range(1, STEPS + 1), ORDINARY):
        for x_t in chain.reachable(x0, t):
            exact = kl(chain.posterior(x0, x_t, t, t - 1), chain.model(f[x_t], x_t, t, t - 1))
            assert loss_at(VariationalBound(), process, x0, x_t, t, f[x_t]) == pytest.approx(exact, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bound_at_the_first_step(schedule: str) -> None:
    """At ``t = 1``: ``-log p(x_0 | x_1)`` with ``p`` the normalised ``f * (beta_1 x_1 + (1 - beta_1) / K)``."""
    process, f, beta = build_process("uniform", schedule), random_denoiser(4), alphas(schedule)[1]
    for x0, x_t in product(ORDINARY, repeat=2):
        weights = {v: f[x_t, v] * (beta * (v == x_t) + (1 - beta) / len(ORDINARY)) for v in ORDINARY}
        exact = -np.log(weights[x0] / sum(weights.values()))
        assert loss_at(VariationalBound(), process, x0, x_t, 1, f[x_t]) == pytest.approx(exact, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bound_is_the_simple_loss_for_absorbing_noise(schedule: str) -> None:
    """D3PM-absorbing: value and gradient of both objectives agree on a batch with padding and all steps."""
    process = build_process("absorbing", schedule)
    noised, logits = random_batch(process, seed=0)
    values, gradients = [], []
    for objective in (VariationalBound(), SIMPLE):
        leaf = logits.clone().requires_grad_()
        value = total(objective, noised, leaf, process)
        value.backward()
        values.append(value.item())
        gradients.append(leaf.grad)
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert values[0] > 1
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


# Absorbing noise that never quite absorbs (alpha_T > 0) has an infinite last term: the comparison is skipped.
FINITE_PRIOR = [case for case in EVERY_CASE if case not in (("absorbing", "cosine"), ("absorbing", "table"))]


@pytest.mark.parametrize(("noise", "schedule"), FINITE_PRIOR)
def test_sum_of_the_terms_bounds_the_likelihood(noise: str, schedule: str) -> None:
    """``-log p(x_0) <= sum_t E[L_t] + KL(q(x_T | x_0) || q_noise)``, with ``p(x_0)`` summed over all chains.

    The right-hand side is also exactly ``E_q log q(x_{1:T} | x_0) / p(x_{0:T})``, again summed over all chains.
    """
    steps = 3
    chain, process = Chain.of(noise, schedule, steps), build_process(noise, schedule, steps)
    f = random_denoiser(5, (steps + 1, VOCAB.size))  # a different denoiser at each step
    p = np.zeros([VOCAB.size] * (steps + 1))  # over (x_0, ..., x_T)
    q = np.zeros_like(p)  # q(x_1, ..., x_T | x_0)
    for states in product(range(VOCAB.size), repeat=steps + 1):
        p[states], q[states] = chain.noise[states[-1]], 1.0
        for t in range(steps, 0, -1):
            before, after = states[t - 1], states[t]
            q[states] *= chain.step(t)[before, after]
            if p[states] > 0:  # otherwise the chain visits a state of probability zero
                p[states] *= chain.model(f[t, after], after, t, t - 1)[before]
    assert p.sum() == pytest.approx(1)
    for x0 in (2, 5):
        bound = kl(chain.between(0, steps)[x0], chain.noise)
        for t in range(1, steps + 1):
            for x_t in chain.reachable(x0, t):
                term = loss_at(VariationalBound(), process, x0, x_t, t, f[t, x_t])
                bound += chain.between(0, t)[x0, x_t] * term
        assert bound == pytest.approx(kl(q[x0], p[x0]), rel=1e-4)
        assert -np.log(p[x0].sum()) <= bound + 1e-5


# --- Weights ---


@pytest.mark.parametrize(
    ("reweighting", "expected"),
    [
        (Original(), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
        (Linear(), [1, 4 / 5, 3 / 5, 2 / 5, 1 / 5]),
        (Constant(), [1, 1, 1, 1, 1]),
    ],
)
def test_weights_of_the_linear_schedule(reweighting: Reweighting, expected: list[float]) -> None:
    """``1/t``, ``1 - (t - 1)/T`` and 1 for T = 5, in float64."""
    weight = reweighting.weight(torch.arange(1, 6), LinearSchedule(5))
    torch.testing.assert_close(weight, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0)


def test_original_weight_of_a_table() -> None:
    """``(alpha_{t-1} - alpha_t) / (1 - alpha_t)`` by hand: it follows the schedule, not ``1/t``."""
    weight = Original().weight(torch.tensor([[1], [2], [3]]), Table([1, 0.9, 0.5, 0.2]))
    assert weight.shape == (3, 1)
    assert weight.flatten().tolist() == pytest.approx([1, 0.4 / 0.5, 0.3 / 0.8])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("reweighting", [Linear(), Constant()])
def test_other_weights_do_not_depend_on_the_schedule(reweighting: Reweighting, schedule: str) -> None:
    """Linear and constant weights depend on ``t`` and ``T`` alone."""
    steps = torch.arange(1, STEPS + 1)
    expected = reweighting.weight(steps, LinearSchedule(STEPS))
    assert torch.equal(reweighting.weight(steps, build_schedule(schedule)), expected)


@pytest.mark.parametrize("table", [[1, 1, 0.5, 0], [1, 0.5, 0.5, 0], [1, 0.5, 0, 0]], ids=["start", "middle", "end"])
def test_original_weight_is_finite_where_alpha_is_constant(table: list[float]) -> None:
    """No token is denoised there: the weight is 0, not NaN."""
    assert Original().weight(torch.arange(1, 4), Table(table)).isfinite().all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reweighting", [Original(), Linear(), Constant()])
def test_weight_multiplies_the_whole_loss(reweighting: Reweighting, smoothing: float) -> None:
    """One smoothed cross-entropy for each noisy position, the weight of its row outside."""
    process = build_process("uniform", "cosine")
    noised, logits = random_batch(process, seed=1)
    weights = reweighting.weight(noised.t, process.schedule)
    expected = 0.0
    for row, column in noised.noisy.nonzero().tolist():
        log_f = logits[row, column].double().log_softmax(0)
        target = torch.zeros(VOCAB.size, dtype=torch.float64)
        target[list(ORDINARY)] = smoothing / len(ORDINARY)
        target[noised.x0[row, column]] += 1 - smoothing
        expected -= weights[row].item() * (target @ log_f).item()
    objective = ReweightedCrossEntropy(reweighting, smoothing)
    assert total(objective, noised, logits, process).item() == pytest.approx(expected, rel=1e-5)


# --- Label smoothing ---


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_invalid_label_smoothing_raises(smoothing: float) -> None:
    """Some mass must remain on the target."""
    with pytest.raises(UserError, match="label_smoothing"):
        ReweightedCrossEntropy(Linear(), smoothing)
