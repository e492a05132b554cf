"""Vanilla decoding: exact distributions against enumeration, and the degenerate posterior."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from rdm.decoding.routing import Ancestral, PosteriorStep, Unconditional
from rdm.decoding.sampler import Canvas
from rdm.decoding.transition import Transition
from rdm.diffusion import schedule as alphas
from rdm.diffusion.noise import Uniform
from rdm.diffusion.process import DiffusionProcess
from rdm.vocab import Vocab
from tests.decoding.helpers import (
    BARRED,
    MASK,
    NOISES,
    TRANSITIONS,
    VOCAB,
    ContextDenoiser,
    TableDenoiser,
    decode,
    make_canvas,
    make_process,
    p_value,
    random_table,
)

ROWS = 20_000
STEPS = 4
SIZE = VOCAB.size
ALPHAS = {  # by hand, not from the code under test
    "linear": np.array([1, 0.75, 0.5, 0.25, 0]),
    "bent": np.array([1, 0.9, 0.5, 0.2, 0.05]),  # starts from noise although alpha_T is not 0
}
MATCH, REJECT = 1e-3, 1e-6


def process_with(noise: str, schedule: str = "linear") -> DiffusionProcess:
    return make_process(noise, schedule=alphas.Table(ALPHAS[schedule].tolist()))


def sample(
    transition: Transition, noise: str, table: np.ndarray, iterations: int, schedule: str = "linear"
) -> tuple[Tensor, list[tuple[int, int]]]:
    """Decode many rows at temperature 1; also return the visited pairs of steps."""
    denoise, length = TableDenoiser(table), table.ndim - 3
    canvas = make_canvas([length] * ROWS)
    decoded, _ = decode(transition, process_with(noise, schedule), denoise, canvas, iterations, 11, temperature=1.0)
    return decoded.tokens, list(pairwise([*denoise.steps, 0]))


def enumerate_pairs(table: np.ndarray, alpha: np.ndarray, grid: list[tuple[int, int]]) -> np.ndarray:
    """Absorbing, two positions: each mask independently takes ``f`` with lambda2; ``[V, V]`` at step 0."""
    now = np.zeros((SIZE, SIZE))
    now[MASK, MASK] = 1
    for t, s in grid:
        turns, after = (alpha[s] - alpha[t]) / (1 - alpha[t]), np.zeros_like(now)
        for x in zip(*now.nonzero(), strict=True):
            stay = np.eye(SIZE)[list(x)]
            moves = [(1 - turns) * stay[n] + turns * table[t][x][n] if x[n] == MASK else stay[n] for n in range(2)]
            after += now[x] * np.outer(*moves)
        now = after
    return now


@pytest.mark.parametrize("transition", [Ancestral(), PosteriorStep()], ids=["ancestral", "posterior"])
@pytest.mark.parametrize("schedule", ALPHAS)
@pytest.mark.parametrize("iterations", [4, 3, 2, 1])
def test_absorbing_pair_equals_enumeration(iterations: int, schedule: str, transition: Transition) -> None:
    """Two dependent positions, every number of iterations: chi-square against enumeration.

    Under mask noise the routed form and the posterior of the appendix have the same distribution.
    """
    table, alpha = random_table(STEPS, 2, seed=1), ALPHAS[schedule]
    tokens, grid = sample(transition, "absorbing", table, iterations, schedule)
    assert len(grid) == iterations
    cells = tokens[:, 0] * SIZE + tokens[:, 1]
    assert p_value(cells, enumerate_pairs(table, alpha, grid)) > MATCH
    other = [(4, 0)] if iterations > 1 else [(4, 2), (2, 0)]
    assert p_value(cells, enumerate_pairs(table, alpha, other)) < REJECT


def enumerate_token(
    table: np.ndarray,
    alpha: np.ndarray,
    grid: list[tuple[int, int]],
    q: np.ndarray,
    keep_denoised: bool = False,
    sent_back_interpolates: bool = False,
) -> np.ndarray:
    """One position, any noise: the chain over (token, b) with b <- where(b, v1, v2); ``[V]`` at step 0."""
    now = np.zeros((2, SIZE))  # [b, token]
    now[0] = q
    for t, s in grid:
        beta, after = alpha[t] / alpha[s], np.zeros_like(now)
        turns = (alpha[s] - alpha[t]) / (1 - alpha[t])
        for x in range(SIZE):
            here = np.eye(SIZE)[x]
            remains = beta * here + (1 - beta) * q
            leaves = (1 - beta) * (1 - alpha[s]) * q[x] / (alpha[t] + (1 - alpha[t]) * q[x]) if now[1, x] else 0.0
            leaves = 0.0 if keep_denoised else leaves
            after[1] += now[1, x] * (1 - leaves) * here
            after[0] += now[1, x] * leaves * (remains if sent_back_interpolates else q)
            after[1] += now[0, x] * turns * table[t, x, 0]
            after[0] += now[0, x] * (1 - turns) * remains
        now = after
    assert now[0].sum() < 1e-12
    return now[1]


@pytest.mark.parametrize("options", [{}, {"keep_denoised": True}, {"sent_back_interpolates": True}], ids=str)
@pytest.mark.parametrize("iterations", [4, 3, 2])
@pytest.mark.parametrize("noise", ["uniform", "mixture", "unigram"])
def test_ancestral_token_equals_enumeration(noise: str, iterations: int, options: dict[str, bool]) -> None:
    """One position under noise that looks like text: chi-square against the chain over (token, b)."""
    table = random_table(STEPS, 1, seed=2)
    tokens, grid = sample(Ancestral(**options), noise, table, iterations)
    q = NOISES[noise]().probs.numpy()
    assert p_value(tokens, enumerate_token(table, ALPHAS["linear"], grid, q, **options)) > MATCH


def test_keep_denoised_changes_the_distribution() -> None:
    """Under uniform noise, each setting of ``keep_denoised`` matches only its own enumeration."""
    table, grids = random_table(STEPS, 1, seed=2), []
    q, alpha = NOISES["uniform"]().probs.numpy(), ALPHAS["linear"]
    table[3:, ..., 2:] = [0.7, 0.1, 0.1, 0.1]
    table[:3, ..., 2:] = [0.1, 0.1, 0.1, 0.7]  # tokens denoised early get the later preference only if sent back
    for keep in (True, False):
        tokens, grid = sample(Ancestral(keep_denoised=keep), "uniform", table, 4)
        grids.append(grid)
        assert p_value(tokens, enumerate_token(table, alpha, grid, q, keep_denoised=keep)) > MATCH
        assert p_value(tokens, enumerate_token(table, alpha, grid, q, keep_denoised=not keep)) < REJECT
    assert grids[0] == grids[1]


@pytest.mark.parametrize("noise", ["absorbing", "uniform", "mixture"])
def test_keep_denoised_never_sends_back(noise: str) -> None:
    """With ``keep_denoised`` no token is sent back; without it, only under mask noise none is."""
    for keep in (True, False):
        process, canvas = process_with(noise), make_canvas([6] * 100)
        _, seen = decode(Ancestral(keep_denoised=keep), process, ContextDenoiser(process, 6), canvas, 4)
        back = sum(int((state.denoised & ~outcome.denoised).sum()) for state, outcome in seen)
        assert (back == 0) == (keep or noise == "absorbing")


def enumerate_posterior(
    table: np.ndarray, alpha: np.ndarray, grid: list[tuple[int, int]], q: np.ndarray, temperature: float = 1.0
) -> np.ndarray:
    """One position: the product of the matrices p(x_s | x_t) ~ q(x_t | x_s) (alpha_s f + (1 - alpha_s) q)."""
    now = q
    for t, s in grid:
        beta, matrix = alpha[t] / alpha[s], np.zeros((SIZE, SIZE))
        for x in q.nonzero()[0]:
            forward = beta * np.eye(SIZE)[x] + (1 - beta) * q[x]  # q(x_t = x | x_s), over x_s
            weights = (forward * (alpha[s] * table[t, x, 0] + (1 - alpha[s]) * q)) ** (1 / temperature)
            matrix[x] = weights / weights.sum()
        now = now @ matrix
    return now


@pytest.mark.parametrize("schedule", ALPHAS)
@pytest.mark.parametrize("iterations", [4, 3, 2, 1])
@pytest.mark.parametrize("noise", ["uniform", "mixture", "unigram"])
def test_posterior_token_equals_matrix_product(noise: str, iterations: int, schedule: str) -> None:
    """Sampling from PosteriorStep: chi-square against the matrix product, which differs from the router's chain."""
    table, q = random_table(STEPS, 1, seed=3), NOISES[noise]().probs.numpy()
    tokens, grid = sample(PosteriorStep(), noise, table, iterations, schedule)
    assert p_value(tokens, enumerate_posterior(table, ALPHAS[schedule], grid, q)) > MATCH
    if noise == "uniform" and iterations == 4:
        assert p_value(tokens, enumerate_token(table, ALPHAS[schedule], grid, q)) < REJECT


def test_temperature_applies_to_the_posterior() -> None:
    table, q = random_table(STEPS, 1, seed=3), NOISES["uniform"]().probs.numpy()
    denoise = TableDenoiser(table)
    decoded, _ = decode(
        PosteriorStep(), process_with("uniform"), denoise, make_canvas([1] * ROWS), 4, 12, temperature=0.6
    )
    grid = list(pairwise([*denoise.steps, 0]))
    assert p_value(decoded.tokens, enumerate_posterior(table, ALPHAS["linear"], grid, q, 0.6)) > MATCH
    assert p_value(decoded.tokens, enumerate_posterior(table, ALPHAS["linear"], grid, q)) < REJECT


@pytest.mark.parametrize("iterations", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["ancestral", "posterior"])
def test_true_posterior_reproduces_the_data(name: str, iterations: int) -> None:
    """One masked position and a perfect denoiser: samples follow the data distribution."""
    data = np.array([0, 0, 0.1, 0.2, 0.3, 0.4])
    table = np.tile(np.eye(SIZE)[:, None], (STEPS + 1, 1, 1, 1))  # the denoiser is certain of visible tokens
    table[:, MASK, 0] = data
    tokens, _ = sample(TRANSITIONS[name](), "absorbing", table, iterations)
    assert p_value(tokens, data) > MATCH


@pytest.mark.parametrize("noise", ["uniform", "mixture"])
def test_marginal_posterior_reproduces_the_data(noise: str) -> None:
    """PosteriorStep with ``f`` the marginal of the data is the exact reverse of the forward chain."""
    data = np.array([0, 0, 0.1, 0.2, 0.3, 0.4])
    table = np.tile(data, (STEPS + 1, SIZE, 1, 1))
    tokens, _ = sample(PosteriorStep(), noise, table, 4)
    assert p_value(tokens, data) > MATCH


# --- the degenerate posterior ----------------------------------------------------------------------------------------


class ShiftingDenoiser:
    """Assigns 0.6 to one id, which depends on step, position and row, and the rest uniformly to the others."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab

    def preferred(self, tokens: Tensor, t: Tensor) -> Tensor:
        rows, columns = torch.arange(tokens.shape[0])[:, None], torch.arange(tokens.shape[1])
        return 5 + (t[:, None] * 101 + columns * 37 + rows * 13) % (self.vocab.size - 5)

    def __call__(self, tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        probs = torch.full((*tokens.shape, self.vocab.size), 0.4 / (self.vocab.size - 6))
        probs.scatter_(2, self.preferred(tokens, t)[..., None], 0.6)
        logits = probs.log()
        logits[..., :5] = BARRED
        return logits[positions]


@pytest.mark.parametrize("schedule", [alphas.Linear(16), alphas.Cosine(16)], ids=["linear", "cosine"])
def test_posterior_decides_in_the_first_iteration(schedule: alphas.Schedule) -> None:
    """Under uniform noise over thousands of ids the posterior argmax keeps its first prediction.

    The predictions of the network change at every step, and the router keeps taking new tokens until the end.
    """
    vocab = Vocab(size=2505)
    process = make_process(Uniform(vocab), schedule=schedule)
    denoise = ShiftingDenoiser(vocab)
    canvas = Canvas(torch.full((4, 16), MASK), torch.zeros(4, 16, dtype=torch.bool))
    preferences = [denoise.preferred(canvas.tokens, torch.full((4,), t)) for t in range(17)]

    _, seen = decode(PosteriorStep(), process, denoise, canvas, 16)
    first = seen.seen[0][1].tokens
    assert torch.equal(first, preferences[16])
    for _, outcome in seen:
        assert (outcome.tokens != first).double().mean() < 0.02

    decoded, seen = decode(Unconditional(), process, denoise, canvas, 16)
    for state, outcome in seen.seen[1:]:
        changed = (outcome.tokens != state.tokens) & outcome.denoised
        assert changed.double().mean() > 0.05
    decided_at = [t for t in range(1, 17) if (decoded.tokens == preferences[t]).any()]
    assert len(decided_at) >= 5
