"""Psi and the leave-one-out corrector: exact distributions against enumeration, plans."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from rdm.decoding.correcting import LeaveOneOut, Psi
from rdm.decoding.routing import Ancestral
from rdm.decoding.transition import Start
from rdm.diffusion import schedule as alphas
from tests.decoding.helpers import (
    MASK,
    NOISES,
    VOCAB,
    ContextDenoiser,
    TableDenoiser,
    decode,
    make_canvas,
    make_process,
    make_state,
    p_value,
    random_table,
)

SIZE, STEPS, ROWS = VOCAB.size, 4, 20_000
ALPHA = np.array([1, 0.9, 0.5, 0.2, 0.05])


def test_psi_without_draws_is_ancestral() -> None:
    """With kappa = 1 the posterior: equal to the bit to ancestral sampling, for every noise."""
    for noise in NOISES:
        process, canvas = make_process(noise, 8), make_canvas([9, 5], prefix=1)
        for iterations in (1, 3, 8):
            ours, theirs = (
                decode(router, process, ContextDenoiser(process, 10), canvas, iterations)[0]
                for router in (Psi(eta=0.0), Ancestral())
            )
            assert torch.equal(ours.tokens, theirs.tokens)


def enumerate_pairs(table: np.ndarray, plan: list[int], eta: float) -> np.ndarray:
    """The distribution ``[V, V]`` of two positions under mask noise after the steps of ``plan``."""
    now = np.zeros((SIZE, SIZE))
    now[MASK, MASK] = 1
    mask = np.eye(SIZE)[MASK]
    for t, s in pairwise(plan):
        kappa = 1 - min(eta, 1 - ALPHA[s]) / (1 - ALPHA[s]) if s else 1.0
        denoise = (ALPHA[s] - ALPHA[t]) / (1 - ALPHA[t])
        after = np.zeros_like(now)
        for x in zip(*now.nonzero(), strict=True):
            moves = []
            for n in range(2):
                guess = table[t][x][n]
                posterior = np.eye(SIZE)[x[n]] if x[n] != MASK else denoise * guess + (1 - denoise) * mask
                moves.append(kappa * posterior + (1 - kappa) * (ALPHA[s] * guess + (1 - ALPHA[s]) * mask))
            after += now[x] * np.outer(*moves)
        now = after
    return now


@pytest.mark.parametrize("iterations", [3, 7])
@pytest.mark.parametrize("eta", [0.3, 1.0])
def test_psi_equals_enumeration(eta: float, iterations: int) -> None:
    """Chi-square of two dependent positions, with fewer and more iterations than T."""
    table, process = random_table(STEPS, 2, seed=1), make_process("absorbing", schedule=alphas.Table(ALPHA.tolist()))
    denoise = TableDenoiser(table)
    decoded, _ = decode(Psi(eta), process, denoise, make_canvas([2] * ROWS), iterations, 11, temperature=1.0)
    plan = [*denoise.steps, 0]
    cells = decoded.tokens[:, 0] * SIZE + decoded.tokens[:, 1]
    assert len(plan) == iterations + 1
    assert p_value(cells, enumerate_pairs(table, plan, eta)) > 1e-3
    assert p_value(cells, enumerate_pairs(table, plan, 0.0)) < 1e-6


def test_psi_draws_new_noise() -> None:
    """With kappa = 0 (eta = 1) a noisy token becomes x0_hat with alpha_s, else a sample of q_noise, whatever it was."""
    rows = 20_000
    state = make_state(torch.full((rows, 1), 4), "uniform", count=torch.ones(rows, dtype=torch.long))
    outcome = Psi(eta=1.0).step(state)  # to s = 2 with alpha 1/2; the proposal is 2
    assert p_value(outcome.tokens, 0.5 * np.eye(SIZE)[2] + 0.5 * NOISES["uniform"]().probs.numpy()) > 1e-3


@pytest.mark.parametrize("iterations", range(1, 12))
def test_leave_one_out_plan(iterations: int) -> None:
    """Predictor and corrector alternate; every corrector visits a step that a predictor has reached."""
    plan = LeaveOneOut().plan(Start(make_process("uniform", 20), iterations, torch.zeros(0, 0, dtype=torch.bool)))
    pairs = list(pairwise(plan))
    assert len(pairs) == iterations
    assert (plan[0], plan[-1]) == (20, 0)
    correctors = [t for t, s in pairs if t == s]
    assert len(correctors) == (iterations - 1) // 2
    assert all(0 < t < 20 for t in correctors)


def test_leave_one_out_distribution() -> None:
    """The distribution of x_0 without the token at the position, against Bayes' rule on a joint distribution."""
    rng, alpha, rows = np.random.default_rng(3), 0.25, 40_000
    size = 4
    without = rng.dirichlet([1.0] * size)  # p(x_0 | x_t without n)
    noise = 1 / size
    observed = 1  # the third id, 2 + 1
    likelihood = np.full(size, (1 - alpha) * noise) + alpha * np.eye(size)[observed]
    posterior = without * likelihood / (without * likelihood).sum()
    logits = torch.full((rows, SIZE), -1e4)
    logits[:, 2:] = torch.from_numpy(posterior).log()
    state = make_state(
        torch.full((rows, 1), 2 + observed),
        "uniform",
        s=3,  # t = s = 3: a corrector, with alpha 1/4
        logits=logits,
        count=torch.ones(rows, dtype=torch.long),
        sample=lambda values: torch.multinomial(values.double().softmax(-1), 1).squeeze(1),
    )
    torch.manual_seed(0)
    outcome = LeaveOneOut(corrected=1.0).step(state)
    expected = np.zeros(SIZE)
    expected[2:] = alpha * without + (1 - alpha) * noise
    assert p_value(outcome.tokens, expected) > 1e-3
    expected[2:] = alpha * posterior + (1 - alpha) * noise
    assert p_value(outcome.tokens, expected) < 1e-6


def test_leave_one_out_corrects_the_least_certain() -> None:
    """The given share of the free positions; the others are kept."""
    logits = torch.zeros(10, SIZE)
    logits[:, :2] = -1e4
    tokens = torch.tensor([[2, 3, 4, 5, 2, 3, 4, 5, 2, 3]])
    doubted = [1, 6, 7]
    for n in range(10):
        logits[n, tokens[0, n]] = -3.0 - n / 10 if n in doubted else 3.0
    state = make_state(tokens, "uniform", s=3, logits=logits, denoised=[[True] * 10])
    outcome = LeaveOneOut(corrected=0.3).step(state)
    assert (outcome.action != 0).nonzero()[:, 1].tolist() == doubted
