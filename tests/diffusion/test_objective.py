"""Objectives against divergences enumerated outcome by outcome, and their behaviour as losses."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.objective import Objective, ReweightedCrossEntropy, VariationalBound
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Constant, Linear, Original, Reweighting
from rdm.diffusion.schedule import Linear as LinearSchedule
from rdm.diffusion.schedule import Table
from rdm.errors import UserError
from rdm.vocab import Vocab
from tests.diffusion.exact import (
    NOISES,
    ORDINARY,
    SCHEDULES,
    STEPS,
    VOCAB,
    Chain,
    alphas,
    build_noise,
    build_process,
    build_schedule,
    kl,
    random_denoiser,
    seeded,
)

EVERY_CASE = list(product(NOISES, SCHEDULES))
BARRED = -3e4  # the logit of an id the model may not predict
SIMPLE = ReweightedCrossEntropy(Original(), label_smoothing=0.0)
OBJECTIVES = {
    "simple": SIMPLE,
    "smoothed": ReweightedCrossEntropy(Linear(), label_smoothing=0.1),
    "bound": VariationalBound(),
}


def as_logits(f: np.ndarray) -> Tensor:
    """Float32 logits, off by a constant from ``log f``, as a denoiser would give them."""
    return torch.from_numpy(np.where(f > 0, np.log(np.maximum(f, 1e-300)) + 0.7, BARRED)).float()


def corruption_of(process: DiffusionProcess, x0: list[list[int]], x_t: list[list[int]], t: list[int]) -> NoisedBatch:
    clean = torch.tensor(x0)
    return NoisedBatch(x0=clean, x_t=torch.tensor(x_t), t=torch.tensor(t), learnable=process.learnable(clean))


def loss_at(objective: Objective, process: DiffusionProcess, x0: int, x_t: int, t: int, f: np.ndarray) -> float:
    """The objective at a single position with the prediction ``f``."""
    noised = corruption_of(process, [[x0]], [[x_t]], [t])
    positions = objective.positions(noised)
    logits = as_logits(f).expand(int(positions.sum()), -1)
    return objective.losses(logits, noised.at(positions), process).sum().item()


def random_batch(process: DiffusionProcess, seed: int, rows: int = 12, columns: int = 7) -> tuple[NoisedBatch, Tensor]:
    """A noised batch, the last columns of some rows padding, with logits ``[R, N, V]`` for all of it."""
    generator = seeded(seed)
    x0 = torch.randint(2, VOCAB.size, (rows, columns), generator=generator)
    x0[::2, -2:] = VOCAB.pad
    t = torch.arange(rows) % process.num_steps + 1
    x_t = process.corrupt(x0, t, generator)
    logits = torch.randn(rows, columns, VOCAB.size, generator=generator)
    logits = logits.masked_fill(~process.noise.learnable, BARRED)
    return NoisedBatch(x0=x0, x_t=x_t, t=t, learnable=process.learnable(x0)), logits


def total(objective: Objective, noised: NoisedBatch, logits: Tensor, process: DiffusionProcess) -> Tensor:
    """The objective, with the logits at its positions."""
    positions = objective.positions(noised)
    return objective.losses(logits[positions], noised.at(positions), process).sum()


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


# --- Sums over positions ---


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_sum_over_rows_and_positions(noise: str, name: str) -> None:
    """The loss of a batch is the sum of the losses of its tokens, each with the step of its row."""
    objective, process = OBJECTIVES[name], build_process(noise, "sqrt")
    noised, logits = random_batch(process, seed=2)
    parts = 0.0
    for row, column in product(*map(range, noised.x0.shape)):
        one = NoisedBatch(
            x0=noised.x0[row, column].view(1, 1),
            x_t=noised.x_t[row, column].view(1, 1),
            t=noised.t[row].view(1),
            learnable=noised.learnable[row, column].view(1, 1),
        )
        part = total(objective, one, logits[row, column].view(1, 1, -1), process).item()
        assert part == 0 or one.learnable.item()
        parts += part
    whole = total(objective, noised, logits, process)
    assert whole.shape == ()
    assert whole.item() == pytest.approx(parts, rel=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_padding_does_not_change_the_loss(noise: str, name: str) -> None:
    """Columns of padding, with any logits, change neither the positions nor the loss."""
    objective, process = OBJECTIVES[name], build_process(noise, "linear")
    noised, logits = random_batch(process, seed=3)
    rows = len(noised.t)
    pads, wild = torch.full((rows, 3), VOCAB.pad), 50 * torch.randn(rows, 3, VOCAB.size, generator=seeded())
    x0 = torch.cat([pads, noised.x0, pads], 1)
    x_t = torch.cat([pads, noised.x_t, pads], 1)
    padded = NoisedBatch(x0=x0, x_t=x_t, t=noised.t, learnable=process.learnable(x0))
    assert torch.equal(objective.positions(padded)[:, 3:-3], objective.positions(noised))
    assert not objective.positions(padded)[x0 == VOCAB.pad].any()
    loss = total(objective, padded, torch.cat([wild, logits, wild], 1), process)
    assert torch.equal(loss, total(objective, noised, logits, process))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_batch_without_noisy_tokens(name: str) -> None:
    """A batch of padding, or without noised tokens, has zero loss and finite gradients."""
    objective, process = OBJECTIVES[name], build_process("uniform", "linear")
    for tokens in ([[0, 0]], [[0, 3]]):
        noised = corruption_of(process, tokens, tokens, [1])
        logits = torch.zeros(1, 2, VOCAB.size).masked_fill(~process.noise.learnable, BARRED).requires_grad_()
        loss = total(objective, noised, logits, process)
        loss.backward()
        assert logits.grad.isfinite().all()
        if not (name == "bound" and 3 in tokens[0]):
            assert loss.item() == 0


# --- Numerical health ---


def assert_finite_gradients(
    objective: Objective, process: DiffusionProcess, x0: Tensor, t: int, logits: Tensor
) -> None:
    """Value and gradient are finite, and the gradient is not zero. Half the tokens are noised; at T, all are."""
    steps = torch.full((len(x0),), t)
    kept = (torch.rand(x0.shape, generator=seeded()) < 0.5) & (t < process.num_steps)
    x_t = torch.where(kept | ~process.learnable(x0), x0, process.noise.sample(x0, seeded(2)))
    noised = NoisedBatch(x0=x0, x_t=x_t, t=steps, learnable=process.learnable(x0))
    leaf = logits.masked_fill(~process.noise.learnable, BARRED).requires_grad_()
    loss = total(objective, noised, leaf, process)
    loss.backward()
    assert 0 < loss.item() < float("inf")
    assert leaf.grad.isfinite().all()
    assert leaf.grad.any()
    assert not leaf.grad[~objective.positions(noised)].any()


@pytest.mark.parametrize("scale", [1.0, 300.0], ids=["soft", "certain"])
@pytest.mark.parametrize("t", [1, STEPS])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_gradients_are_finite(noise: str, schedule: str, name: str, t: int, scale: float) -> None:
    """At the first and last step, in float32, also for a denoiser that is certain and wrong."""
    x0 = torch.tensor(ORDINARY).repeat(6, 3)
    x0[:, -1] = VOCAB.pad
    logits = scale * torch.randn(*x0.shape, VOCAB.size, generator=seeded(1))
    assert_finite_gradients(OBJECTIVES[name], build_process(noise, schedule), x0, t, logits)


@pytest.mark.parametrize("t", [1, 25, 50])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_gradients_are_finite_for_a_large_vocabulary(noise: str, name: str, t: int) -> None:
    """The same with 50,000 ids and 50 steps."""
    vocab = Vocab(size=50_000)
    counts = torch.arange(vocab.size)
    schedule = build_schedule("linear" if noise == "absorbing" else "cosine", 50)
    process = DiffusionProcess(schedule, build_noise(noise, vocab, counts))
    x0 = torch.randint(5, vocab.size, (4, 5), generator=seeded())
    x0[0, -1] = vocab.pad
    logits = torch.randn(4, 5, vocab.size, generator=seeded(1))
    assert_finite_gradients(OBJECTIVES[name], process, x0, t, logits)


@pytest.mark.parametrize("noise", NOISES)
def test_gradient_of_the_bound_where_alpha_is_zero_before_the_last_step(noise: str) -> None:
    """At T nothing can be learned: the gradient is 0, not NaN."""
    process = DiffusionProcess(Table([1, 0.5, 0, 0]), build_noise(noise))
    x0 = torch.tensor([ORDINARY])
    x_t = process.corrupt(x0, torch.tensor([3]), seeded())
    logits = torch.randn(1, 4, VOCAB.size, generator=seeded())
    logits = logits.masked_fill(~process.noise.learnable, BARRED).requires_grad_()
    noised = NoisedBatch(x0=x0, x_t=x_t, t=torch.tensor([3]), learnable=process.learnable(x0))
    loss = total(VariationalBound(), noised, logits, process)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert logits.grad.abs().max().item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_half_precision_logits(noise: str, name: str) -> None:
    """Logits in bfloat16 are summed in float32: the loss is that of the same numbers in float32."""
    objective, process = OBJECTIVES[name], build_process(noise, "cosine")
    noised, logits = random_batch(process, seed=4)
    half = logits.bfloat16()
    loss = total(objective, noised, half, process)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, total(objective, noised, half.float(), process))


@pytest.mark.parametrize("noise", NOISES)
def test_perfect_denoiser_has_zero_loss(noise: str) -> None:
    """A denoiser that knows ``x_0`` reaches the minimum 0 of the bound and of the simple loss."""
    process = build_process(noise, "linear")
    noised, logits = random_batch(process, seed=5)
    perfect = torch.full_like(logits, BARRED).scatter(2, noised.x0[..., None], 0.0)
    for objective in (SIMPLE, VariationalBound()):
        assert total(objective, noised, perfect, process).item() == pytest.approx(0, abs=1e-4)
        assert total(objective, noised, logits, process).item() > 1
