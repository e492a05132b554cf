"""The forward process and its posterior against explicit transition matrices."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from rdm.diffusion.noise import Absorbing, Mixture, Noise, Uniform
from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.schedule import Linear, Table
from tests.diffusion.exact import (
    NOISES,
    ORDINARY,
    PROBS,
    SCHEDULES,
    SENTENCE_VOCAB,
    STEPS,
    VOCAB,
    Chain,
    alphas,
    assert_drawn_from,
    build_noise,
    build_process,
    count,
    random_denoiser,
    seeded,
)

EVERY_CASE = list(product(NOISES, SCHEDULES))
GAPS = (1, 3, STEPS)  # s = t - 1; a larger gap; s = 0


def transitions(chain: Chain, gap: int | None = None) -> list[tuple[int, int, int, int]]:
    """All possible ``(x0, x_t, t, s)`` with ``s = max(t - gap, 0)``, or with all ``s < t``."""
    return [
        (x0, x_t, t, s)
        for t in range(1, chain.steps + 1)
        for s in (range(t) if gap is None else [max(t - gap, 0)])
        for x0 in ORDINARY
        for x_t in chain.reachable(x0, t)
    ]


def columns(rows: list[tuple[int, ...]]) -> tuple[Tensor, ...]:
    return torch.tensor(rows).unbind(1)


def onehot_log(tokens: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.nn.functional.one_hot(tokens, VOCAB.size).to(dtype).log()


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_matrices_have_the_closed_form(noise: str, schedule: str) -> None:
    """The product of one-step matrices is ``alpha_t I + (1 - alpha_t) 1 q^T`` (Eq. 1)."""
    chain = Chain.of(noise, schedule)
    for t, alpha in enumerate(alphas(schedule)):
        closed = alpha * np.eye(VOCAB.size) + (1 - alpha) * PROBS[noise][None]
        np.testing.assert_allclose(chain.between(0, t), closed, atol=1e-12)


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_corrupt_draws_from_the_marginal(noise: str, schedule: str) -> None:
    """``corrupt`` draws from ``q(x_t | x_0)`` at every step from 0 to T, with a different step per row."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    rows = list(product(ORDINARY, range(STEPS + 1)))
    x0, t = columns(rows)
    draws = process.corrupt(x0[:, None].expand(-1, 20_000), t, seeded())
    assert_drawn_from(count(draws, VOCAB.size), np.stack([chain.between(0, t)[x0] for x0, t in rows]))


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_corrupt_treats_positions_independently(noise: str, schedule: str) -> None:
    """Two positions of one row are drawn independently of each other."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    pair = torch.tensor([3, 5]).expand(20_000, 2)
    for t in (1, STEPS // 2):
        first, second = process.corrupt(pair, torch.full((20_000,), t), seeded(1)).unbind(1)
        marginal = chain.between(0, t)
        joint = np.outer(marginal[3], marginal[5]).reshape(1, -1)
        assert_drawn_from(count((first * VOCAB.size + second)[None], VOCAB.size**2), joint)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_dense_posterior(noise: str, schedule: str, dtype: torch.dtype) -> None:
    """With a one-hot ``x_0``, ``posterior_log_probs`` is Bayes' rule for all ``s < t``, ``x_t`` and ``x_0``."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    rows = transitions(chain)
    x0, x_t, t, s = columns(rows)
    actual = process.posterior_log_probs(x_t, onehot_log(x0, dtype), t, s)
    assert actual.dtype == dtype
    expected = np.stack([chain.posterior(*row) for row in rows])
    np.testing.assert_allclose(actual.exp(), expected, rtol=0, atol=1e-11 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_dense_posterior_of_a_distribution(noise: str, schedule: str) -> None:
    """With a distribution for ``x_0`` it is the normalised ``P_{t|s}[:, x_t] * (f @ P_{s|0})``."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    rows = transitions(chain)
    _, x_t, t, s = columns(rows)
    f = random_denoiser(0, (len(rows),))
    actual = process.posterior_log_probs(x_t, torch.from_numpy(f).log(), t, s).exp()
    expected = np.stack([chain.model(f, x_t, t, s) for f, (_, x_t, t, s) in zip(f, rows, strict=True)])
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(actual.sum(1), 1, atol=1e-11)


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_branching_form_of_the_posterior(noise: str, schedule: str) -> None:
    """Prop. 3.1 for any gap: ``lambda1`` and ``lambda2`` in Eq. 4 give Bayes' rule."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    rows = transitions(chain)
    x0, x_t, t, s = columns(rows)
    lambda1, lambda2 = process.lambda1(x_t[:, None], t, s).numpy(), process.lambda2(t, s).numpy()
    assert lambda1.shape == lambda2.shape == (len(rows), 1)
    same, eye = (x_t == x0)[:, None].numpy(), np.eye(VOCAB.size)
    # q_noise(x_t) = (alpha_t / alpha_s) x_t + (1 - alpha_t / alpha_s) q_noise is the row x_t of q(x_t | x_s).
    still_noisy = np.stack([chain.between(s, t)[x_t] for _, x_t, t, s in rows])
    denoised = lambda1 * eye[x_t] + (1 - lambda1) * PROBS[noise]
    noisy = lambda2 * eye[x0] + (1 - lambda2) * still_noisy
    expected = np.stack([chain.posterior(*row) for row in rows])
    np.testing.assert_allclose(np.where(same, denoised, noisy), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_step_posterior_draws_from_the_posterior(noise: str, schedule: str, gap: int) -> None:
    """``step_posterior`` draws from ``q(x_s | x_t, x_0)`` for all ``t``, ``x_t`` and ``x_0`` in one batch."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    rows = transitions(chain, gap)
    x0, x_t, t, s = columns(rows)
    draws = process.step_posterior(x_t[:, None].expand(-1, 4_000), x0[:, None].expand(-1, 4_000), t, s, seeded(2))
    assert_drawn_from(count(draws, VOCAB.size), np.stack([chain.posterior(*row) for row in rows]))


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_step_posterior_to_zero_restores_the_text(noise: str, schedule: str) -> None:
    """At ``s = 0`` the posterior is a point mass on ``x_0``."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    x0, x_t, t, s = columns(transitions(chain, STEPS))
    x0, x_t = x0[:, None].expand(-1, 1_000), x_t[:, None].expand(-1, 1_000)
    assert (s == 0).all()
    assert torch.equal(process.step_posterior(x_t, x0, t, s, seeded()), x0)


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_renoise_draws_from_the_interpolated_noise(noise: str, schedule: str) -> None:
    """A noisy token that stays noisy is ``x_t`` with probability ``alpha_t / alpha_s``, else a fresh draw."""
    chain, process = Chain.of(noise, schedule), build_process(noise, schedule)
    rows = [(x_t, t, s) for t, s in ((1, 0), (3, 2), (4, 1), (STEPS, STEPS - 1), (STEPS, 1)) for x_t in (1, *ORDINARY)]
    x_t, t, s = columns(rows)
    draws = process.renoise(x_t[:, None].expand(-1, 10_000), t, s, seeded(3))
    assert_drawn_from(count(draws, VOCAB.size), np.stack([chain.between(s, t)[x_t] for x_t, t, s in rows]))


@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_lambdas_are_probabilities(noise: str, schedule: str) -> None:
    """Also for impossible states (a token that survives absorbing noise at T): no NaN, all within [0, 1]."""
    process = build_process(noise, schedule)
    t, s, x_t = columns([(t, s, x) for t in range(1, STEPS + 1) for s in range(t) for x in range(VOCAB.size)])
    for probability in (process.lambda1(x_t[:, None], t, s), process.lambda2(t, s)):
        assert probability.dtype == torch.float64
        assert ((probability >= 0) & (probability <= 1)).all()


class LevelChain(Chain):
    """A chain whose alphas may stay at 0, where ``beta = 0 / 0`` is arbitrary."""

    def step(self, t: int) -> np.ndarray:
        return np.tile(self.noise, (VOCAB.size, 1)) if self.alphas[t] == 0 else super().step(t)


LEVEL = pytest.mark.parametrize(
    "table",
    [[1, 1, 0.5, 0], [1, 0.5, 0.5, 0], [1, 0.5, 0, 0]],
    ids=["start", "middle", "end"],
)


@LEVEL
@pytest.mark.parametrize("noise", NOISES)
def test_posterior_where_alpha_is_constant(noise: str, table: list[float]) -> None:
    """The posteriors are still those of the matrices."""
    process, chain = DiffusionProcess(Table(table), build_noise(noise)), LevelChain(table, PROBS[noise])
    rows = transitions(chain)
    x0, x_t, t, s = columns(rows)
    expected = np.stack([chain.posterior(*row) for row in rows])
    np.testing.assert_allclose(process.posterior_log_probs(x_t, onehot_log(x0), t, s).exp(), expected, atol=1e-12)
    draws = process.step_posterior(x_t[:, None].expand(-1, 4_000), x0[:, None].expand(-1, 4_000), t, s, seeded())
    assert_drawn_from(count(draws, VOCAB.size), expected)


@LEVEL
@pytest.mark.parametrize("noise", NOISES)
def test_lambdas_are_not_nan_where_alpha_is_constant(noise: str, table: list[float]) -> None:
    """At a constant start every ``x_t`` is ``x_0`` and ``lambda2`` is not used, but it must not be NaN."""
    process = DiffusionProcess(Table(table), build_noise(noise))
    t, s, x_t = columns([(t, s, x) for t in range(1, 4) for s in range(t) for x in range(VOCAB.size)])
    assert not process.lambda1(x_t[:, None], t, s).isnan().any()
    assert not process.lambda2(t, s).isnan().any()


@pytest.mark.parametrize("noise", NOISES)
def test_first_and_last_step_of_the_process(noise: str) -> None:
    """No token is noised at 0; if ``alpha_T = 0`` all tokens are noise at T."""
    process = build_process(noise, "linear")
    x0 = torch.tensor(ORDINARY).expand(500, 4)
    assert torch.equal(process.corrupt(x0, torch.zeros(500, dtype=torch.long), seeded()), x0)
    last = process.corrupt(x0, torch.full((500,), STEPS), seeded())
    assert torch.equal(last, process.corrupt(x0.flip(1), torch.full((500,), STEPS), seeded()))


SENTENCE = [2, 5, 6, 4, 7, 8, 3, 0, 0]  # <bos> a b <unk> c d <eos> <pad> <pad>


@pytest.mark.parametrize("gap", [None, *GAPS])
@pytest.mark.parametrize(
    ("noise", "touched", "support"),
    [
        (Absorbing(SENTENCE_VOCAB), [0, 1, 2, 3, 4, 5, 6], {1}),
        (Absorbing(SENTENCE_VOCAB, noise_specials=False), [1, 2, 4, 5], {1}),
        (Uniform(SENTENCE_VOCAB), [1, 2, 4, 5], {5, 6, 7, 8}),
        (build_noise("unigram", SENTENCE_VOCAB, torch.arange(9)), [1, 2, 4, 5], {5, 6, 7, 8}),
        (Mixture(SENTENCE_VOCAB), [1, 2, 4, 5], {1, 5, 6, 7, 8}),
    ],
)
def test_special_symbols_are_not_noised(noise: Noise, touched: list[int], support: set[int], gap: int | None) -> None:
    """Padding never is; other special symbols only by absorbing noise with ``noise_specials``."""
    process = DiffusionProcess(Linear(STEPS), noise)
    x0 = torch.tensor(SENTENCE).expand(2_000, -1)
    t = torch.full((2_000,), STEPS - 1)
    drawn = process.corrupt(x0, t, seeded())
    if gap is not None:
        # The posterior restores x_0 at positions that are not learnable.
        overwritten = torch.where(process.learnable(x0), drawn, SENTENCE_VOCAB.mask)
        drawn = process.step_posterior(overwritten, x0, t, (t - gap).clamp(min=0), seeded(1))
    changed = drawn != x0
    clean = gap is not None and gap >= STEPS - 1
    assert process.learnable(x0)[0].nonzero().flatten().tolist() == touched
    assert changed.any(0).nonzero().flatten().tolist() == ([] if clean else touched)
    assert set(drawn[changed].tolist()) <= support


def test_noisy_positions() -> None:
    """``noisy`` is ``x_t != x_0``: noise may draw the clean token."""
    x0, x_t = torch.tensor([[2, 3, 4, 0]]), torch.tensor([[2, 5, 1, 0]])
    noised = NoisedBatch(x0=x0, x_t=x_t, t=torch.tensor([1]), learnable=x0 != 0)
    assert noised.noisy.tolist() == [[False, True, True, False]]


def test_global_generator_by_default() -> None:
    """Without a generator the draws follow ``torch.manual_seed``."""
    process, x0, t = build_process("uniform", "linear"), torch.full((3, 40), 2), torch.full((3,), 4)
    torch.manual_seed(5)
    first = process.corrupt(x0, t)
    torch.manual_seed(5)
    assert torch.equal(first, process.corrupt(x0, t))
    assert not torch.equal(first, process.corrupt(x0, t))
