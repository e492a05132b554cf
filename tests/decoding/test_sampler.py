"""The sampling loop: exact distributions against enumeration, an end without noise, scores."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from torch import Tensor

from rdm.decoding.routing import Ancestral, PosteriorStep, Unconditional
from rdm.decoding.sampler import Canvas
from rdm.decoding.transition import Action, Transition
from rdm.diffusion import schedule as alphas
from rdm.diffusion.noise import Uniform
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import UserError
from rdm.vocab import Vocab
from tests.decoding.helpers import (
    BARRED,
    FEWER_ITERATIONS,
    MASK,
    NOISES,
    ROUTERS,
    SCHEDULES,
    TOP_K,
    TRANSITIONS,
    VOCAB,
    FixedScores,
    Restless,
    TableDenoiser,
    decode,
    make_canvas,
    make_process,
    make_sampler,
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
    """Many rows decoded at temperature 1, and the steps that were visited."""
    denoise, length = TableDenoiser(table), table.ndim - 3
    canvas = make_canvas([length] * ROWS)
    decoded, _ = decode(transition, process_with(noise, schedule), denoise, canvas, iterations, 11, temperature=1.0)
    return decoded.tokens, list(pairwise([*denoise.steps, 0]))


# --- vanilla decoding is the model's distribution, exactly -----------------------------------------------------------


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
def test_absorbing_pair(iterations: int, schedule: str, transition: Transition) -> None:
    """Two positions that depend on each other, every number of iterations: chi-square against the enumeration.

    For mask noise the routed form and the posterior of the appendix are the same distribution.
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
def test_ancestral_token(noise: str, iterations: int, options: dict[str, bool]) -> None:
    """One position under noise that looks like text: chi-square against the chain over (token, b)."""
    table = random_table(STEPS, 1, seed=2)
    tokens, grid = sample(Ancestral(**options), noise, table, iterations)
    q = NOISES[noise]().probs.numpy()
    assert p_value(tokens, enumerate_token(table, ALPHAS["linear"], grid, q, **options)) > MATCH


def test_keep_denoised_is_another_distribution() -> None:
    """Under uniform noise ``keep_denoised`` changes what is generated, and each matches its own enumeration only."""
    table, grids = random_table(STEPS, 1, seed=2), []
    q, alpha = NOISES["uniform"]().probs.numpy(), ALPHAS["linear"]
    table[3:, ..., 2:] = [0.7, 0.1, 0.1, 0.1]
    table[:3, ..., 2:] = [0.1, 0.1, 0.1, 0.7]  # a late opinion: what is denoised early takes it only if sent back
    for keep in (True, False):
        tokens, grid = sample(Ancestral(keep_denoised=keep), "uniform", table, 4)
        grids.append(grid)
        assert p_value(tokens, enumerate_token(table, alpha, grid, q, keep_denoised=keep)) > MATCH
        assert p_value(tokens, enumerate_token(table, alpha, grid, q, keep_denoised=not keep)) < REJECT
    assert grids[0] == grids[1]


@pytest.mark.parametrize("noise", ["absorbing", "uniform", "mixture"])
def test_keep_denoised_never_sends_back(noise: str) -> None:
    """With ``keep_denoised`` a denoised token stays to the end; without it, only mask noise never sends back."""
    for keep in (True, False):
        process, canvas = process_with(noise), make_canvas([6] * 100)
        _, seen = decode(Ancestral(keep_denoised=keep), process, Restless(process, 6), canvas, 4)
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
def test_posterior_token(noise: str, iterations: int, schedule: str) -> None:
    """PosteriorStep with draws: chi-square against the explicit matrix product; not what the router gives."""
    table, q = random_table(STEPS, 1, seed=3), NOISES[noise]().probs.numpy()
    tokens, grid = sample(PosteriorStep(), noise, table, iterations, schedule)
    assert p_value(tokens, enumerate_posterior(table, ALPHAS[schedule], grid, q)) > MATCH
    if noise == "uniform" and iterations == 4:
        assert p_value(tokens, enumerate_token(table, ALPHAS[schedule], grid, q)) < REJECT


def test_posterior_at_another_temperature() -> None:
    """The temperature acts on the posterior itself."""
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
def test_true_posterior_gives_the_data(name: str, iterations: int) -> None:
    """One masked position and a perfect denoiser (a mask says nothing, so f is the data): the data come out."""
    data = np.array([0, 0, 0.1, 0.2, 0.3, 0.4])
    table = np.tile(np.eye(SIZE)[:, None], (STEPS + 1, 1, 1, 1))  # a seen token is certain
    table[:, MASK, 0] = data
    tokens, _ = sample(TRANSITIONS[name](), "absorbing", table, iterations)
    assert p_value(tokens, data) > MATCH


@pytest.mark.parametrize("noise", ["uniform", "mixture"])
def test_marginal_posterior_gives_the_data(noise: str) -> None:
    """PosteriorStep with ``f`` the marginal of the data is the exact reverse of the forward chain: data again."""
    data = np.array([0, 0, 0.1, 0.2, 0.3, 0.4])
    table = np.tile(data, (STEPS + 1, SIZE, 1, 1))
    tokens, _ = sample(PosteriorStep(), noise, table, 4)
    assert p_value(tokens, data) > MATCH


# --- no noise is left at the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", ROUTERS)
def test_ends_without_noise(name: str, noise: str, schedule: str) -> None:
    """Every M from 1 to T, dividing T or not, with Gumbel noise or without: all is denoised, pinned is as it was."""
    process, canvas = make_process(noise, 7), make_canvas([8, 5, 1, 0], prefix=1)
    denoise = Restless(process, 9)
    for iterations, scale in product(range(1, 8), (0.0, 5.0) if name in TOP_K else (None,)):
        router = ROUTERS[name]() if scale is None else ROUTERS[name](gumbel_scale=scale)
        decoded, seen = decode(router, process, denoise, canvas, iterations, schedule=SCHEDULES[schedule])
        assert len(seen) == iterations or (name in FEWER_ITERATIONS and 0 < len(seen) < iterations)
        assert torch.equal(seen.seen[-1][1].denoised, ~canvas.pinned)
        assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()
        for _, outcome in seen:
            assert torch.equal(outcome.tokens[canvas.pinned], canvas.tokens[canvas.pinned])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("noise", NOISES)
def test_posterior_step_ends_without_noise(noise: str, temperature: float) -> None:
    """The same of the posterior step: no mask is left, and pinned positions stay as they were."""
    process, canvas = make_process(noise, 7), make_canvas([8, 5, 1, 0], prefix=1)
    denoise = Restless(process, 9)
    for iterations in range(1, 8):
        decoded, seen = decode(PosteriorStep(), process, denoise, canvas, iterations, temperature=temperature)
        assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()
        for _, outcome in seen:
            assert torch.equal(outcome.tokens[canvas.pinned], canvas.tokens[canvas.pinned])


@pytest.mark.parametrize(
    "values",
    [
        (0.0,),
        (-1.0,),
        (float("-inf"),),
        (float("inf"),),
        (float("nan"),),
        (-1e30,),
        (-1e-12, -2e-12, 0.0),
        (0.0, float("-inf"), float("nan"), -1.0, float("inf")),
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [0.0, 5.0])
@pytest.mark.parametrize("name", TOP_K)
def test_extreme_scores(name: str, scale: float, values: tuple[float, ...]) -> None:
    """Scores without any order to speak of still denoise exactly as many as the schedule says, and all at the end."""
    process, canvas = make_process("absorbing", 7), make_canvas([8, 5, 1], prefix=1)
    denoise = Restless(process, 9)
    for iterations in (1, 3, 5, 7):
        router = ROUTERS[name](gumbel_scale=scale)
        decoded, seen = decode(router, process, denoise, canvas, iterations, scores=FixedScores(*values))
        for state, outcome in seen:
            after = outcome.denoised.sum(1)
            assert (after >= state.count).all() if name == "cond" else torch.equal(after, state.count)
        assert torch.equal(seen.seen[-1][1].denoised, ~canvas.pinned)
        assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()


@pytest.mark.parametrize("name", TOP_K)
def test_certain_denoiser(name: str) -> None:
    """A network sure of everything scores exactly 0 everywhere: no mask survives (the official code's trap)."""

    def denoise(tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        logits = torch.full((int(positions.sum()), SIZE), BARRED)
        logits[:, 4] = 0.0
        return logits

    process = make_process("absorbing", 10)
    decoded, seen = decode(ROUTERS[name](), process, denoise, make_canvas([9, 6]), 10)
    assert (decoded.tokens[0] == 4).all()
    assert (decoded.tokens[1, :6] == 4).all()
    assert decoded.scores.tolist() == [0.0, 0.0]
    assert all(torch.equal(outcome.denoised.sum(1), state.count) for state, outcome in seen)


# --- the loop itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES)
def test_starts_from_noise(noise: str) -> None:
    """The first state is a draw from ``q_noise`` at every free position, nothing of the canvas is left there."""
    process = make_process(noise, 4)
    canvas = make_canvas([2] * ROWS, prefix=1)
    _, seen = decode(Unconditional(), process, Restless(process, 3), canvas, 1)
    state, _ = seen.seen[0]
    assert p_value(state.tokens[:, 1:], process.noise.probs.numpy()) > MATCH
    assert torch.equal(state.tokens[:, 0], canvas.tokens[:, 0])
    assert not state.denoised.any()
    assert not state.stored.any()


@pytest.mark.parametrize("steps", [1, 3, 6])
@pytest.mark.parametrize("name", TRANSITIONS)
def test_score_by_hand(name: str, steps: int) -> None:
    """The score of a row is the mean, over its free positions, of the score each had when last denoised."""
    process, canvas = make_process("absorbing", 6), make_canvas([7, 4, 1, 0], prefix=2)
    decoded, seen = decode(TRANSITIONS[name](), process, Restless(process, 9), canvas, steps)
    free = ~canvas.pinned
    last = torch.full(free.shape, float("nan"))
    for state, outcome in seen:
        if name == "posterior":  # has a fresh score everywhere
            log_probs = state.logits.log_softmax(-1)
            last[free] = log_probs[torch.arange(len(log_probs)), outcome.tokens[free]]
        else:
            taken = outcome.action == Action.PROPOSE
            last[taken] = state.scores[taken]
    expected = [float(row[mask].mean()) if mask.any() else 0.0 for row, mask in zip(last, free, strict=True)]
    assert decoded.scores.tolist() == pytest.approx(expected, rel=1e-5)


def test_score_is_that_of_the_proposal() -> None:
    """The score a router sees is the log-probability of the token proposed at that position."""
    process, canvas = make_process("uniform", 5), make_canvas([6, 3], prefix=1)
    _, seen = decode(Unconditional(), process, Restless(process, 7), canvas, 5, temperature=1.0)
    for state, _ in seen:
        log_probs = state.logits.log_softmax(-1)
        chosen = log_probs.gather(1, state.proposal[state.free][:, None]).squeeze(1)
        torch.testing.assert_close(state.scores[state.free], chosen)


@pytest.mark.parametrize("name", TOP_K)
def test_rows_do_not_disturb_each_other(name: str) -> None:
    """A row decodes to the same text and score alone and beside longer rows."""
    process = make_process("absorbing", 8)
    denoise, canvas = Restless(process, 11), make_canvas([5, 9, 2], prefix=2)
    together, _ = decode(ROUTERS[name](), process, denoise, canvas, 6)
    for row, length in enumerate([5, 9, 2]):
        one = Canvas(canvas.tokens[row : row + 1, : length + 2], canvas.pinned[row : row + 1, : length + 2])
        alone, _ = decode(ROUTERS[name](), process, denoise, one, 6)
        assert alone.tokens[0].tolist() == together.tokens[row, : length + 2].tolist()
        assert alone.scores[0].item() == pytest.approx(together.scores[row].item(), rel=1e-5)


def test_reproducible_by_seed() -> None:
    """The same seed gives the same text, another seed another one."""
    process, canvas = make_process("uniform", 6), make_canvas([8] * 4)
    runs = [
        decode(Unconditional(), process, Restless(process, 8), canvas, 6, seed, temperature=1.0)[0].tokens.tolist()
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(("steps", "expected"), [(1, [1.0]), (2, [1.0, 0.2]), (5, [1.0, 0.8, 0.6, 0.4, 0.2])], ids=str)
def test_annealed_temperature_along_the_loop(
    steps: int, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first iteration has the first temperature, the last one the final temperature."""
    process, used = make_process("absorbing", 5), []
    monkeypatch.setattr("rdm.decoding.proposal.sample_ids", lambda logits, t, *_: used.append(t) or logits.argmax(-1))
    denoise = Restless(process, 4)
    decode(Unconditional(), process, denoise, make_canvas([4]), steps, temperature=1.0, final_temperature=0.2)
    assert used == pytest.approx(expected)


def test_the_canvas_is_not_changed() -> None:
    """Decoding fills a copy."""
    process, canvas = make_process("absorbing", 5), make_canvas([6, 2], prefix=1)
    before = canvas.tokens.clone()
    decode(Unconditional(), process, Restless(process, 7), canvas, 5)
    assert torch.equal(canvas.tokens, before)


@pytest.mark.parametrize("options", [{"steps": 0}, {"steps": -1}, {"steps": 1, "length_candidates": 0}], ids=str)
def test_bad_values(options: dict[str, int]) -> None:
    """Counts below one are refused with a message for the user."""
    with pytest.raises(UserError):
        make_sampler(Unconditional(), **options)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_steps_beyond_the_trained_number(name: str) -> None:
    """Refused by ``check`` and ``run`` with the same message, unless the transition can visit a step repeatedly."""
    process, canvas = make_process("absorbing", 5), make_canvas([4])
    sampler = make_sampler(TRANSITIONS[name](), 6)
    if name.startswith("remdm"):
        sampler.check(process)
        assert sampler.run(process, Restless(process, 4), canvas).calls.tolist() <= [6]
        return
    message = r"^decoding\.steps=6 exceeds diffusion\.num_steps=5 \(the number of steps this model was trained with\)$"
    for attempt in (lambda: sampler.check(process), lambda: sampler.run(process, Restless(process, 4), canvas)):
        with pytest.raises(UserError, match=message):
            attempt()


@pytest.mark.parametrize("name", TRANSITIONS)
def test_check_leaves_the_random_state_unchanged(name: str) -> None:
    before = torch.get_rng_state()
    make_sampler(TRANSITIONS[name](), 4).check(make_process("absorbing", 4))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_calls_count_the_iterations_with_an_active_position(name: str) -> None:
    """Rows without an active position cost no call; after pruning the counts of the remaining rows are returned."""
    process, canvas = make_process("absorbing", 9), make_canvas([8, 1, 0, 5, 2, 7])
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=3)
    for options in ({}, {"prune_after": 3, "keep_candidates": 2}):
        decoded, seen = decode(TRANSITIONS[name](), process, Restless(process, 8), canvas, 9, **options)
        expected = torch.zeros(6, dtype=torch.long)
        for state, _ in seen:
            expected[state.rows] += state.active.any(1)
        assert decoded.calls.tolist() == expected[decoded.rows].tolist()
        assert (decoded.calls[decoded.rows == 2] == 0).all()
    if name in ("uncond", "cond", "posterior"):
        assert set(decoded.calls.tolist()) <= {0, 9}


# --- the degenerate posterior ----------------------------------------------------------------------------------------


class ChangesItsMind:
    """Gives 0.6 to one id, another one at every step, position and row, and spreads the rest."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab

    def favourite(self, tokens: Tensor, t: Tensor) -> Tensor:
        rows, columns = torch.arange(tokens.shape[0])[:, None], torch.arange(tokens.shape[1])
        return 5 + (t[:, None] * 101 + columns * 37 + rows * 13) % (self.vocab.size - 5)

    def __call__(self, tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        probs = torch.full((*tokens.shape, self.vocab.size), 0.4 / (self.vocab.size - 6))
        probs.scatter_(2, self.favourite(tokens, t)[..., None], 0.6)
        logits = probs.log()
        logits[..., :5] = BARRED
        return logits[positions]


@pytest.mark.parametrize("schedule", [alphas.Linear(16), alphas.Cosine(16)], ids=["linear", "cosine"])
def test_posterior_decides_in_the_first_iteration(schedule: alphas.Schedule) -> None:
    """Under uniform noise over a few thousand ids the posterior argmax stays with its first guess, although the
    network changes its mind at every step; the router goes on taking new tokens to the end."""
    vocab = Vocab(size=2505)
    process = make_process(Uniform(vocab), schedule=schedule)
    denoise = ChangesItsMind(vocab)
    canvas = Canvas(torch.full((4, 16), MASK), torch.zeros(4, 16, dtype=torch.bool))
    favourites = [denoise.favourite(canvas.tokens, torch.full((4,), t)) for t in range(17)]

    _, seen = decode(PosteriorStep(), process, denoise, canvas, 16)
    first = seen.seen[0][1].tokens
    assert torch.equal(first, favourites[16])
    for _, outcome in seen:
        assert (outcome.tokens != first).double().mean() < 0.02

    decoded, seen = decode(Unconditional(), process, denoise, canvas, 16)
    for state, outcome in seen.seen[1:]:
        changed = (outcome.tokens != state.tokens) & outcome.denoised
        assert changed.double().mean() > 0.05
    decided_at = [t for t in range(1, 17) if (decoded.tokens == favourites[t]).any()]
    assert len(decided_at) >= 5


# --- candidates that are dropped on the way ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRANSITIONS)
@pytest.mark.parametrize("noise", NOISES)
def test_pruning_keeps_the_best_of_each_source(noise: str, name: str) -> None:
    process, canvas = make_process(noise, 7), make_canvas([5, 9, 2, 6, 3, 8], prefix=1)
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=3)
    decoded, seen = decode(
        TRANSITIONS[name](), process, Restless(process, 11), canvas, 5, prune_after=2, keep_candidates=2
    )
    states = [state for state, _ in seen]
    pruned = 3 if name not in FEWER_ITERATIONS else len(states) - 2
    assert pruned >= 1
    assert [len(state.tokens) for state in states] == [6, 6, *[4] * pruned]
    # By hand: the mean score of the second iteration over the free positions; DNDM has scores at some of them only.
    free = ~canvas.pinned
    scored = free if not name.startswith("dndm") else free & (states[1].active | states[1].denoised)
    means = [states[1].scores[row][scored[row]].mean().nan_to_num(-1e9).item() for row in range(6)]
    best = [sorted(group, key=means.__getitem__)[1:] for group in ([0, 1, 2], [3, 4, 5])]
    assert [sorted(pair) for pair in decoded.rows.view(2, 2).tolist()] == [sorted(pair) for pair in best]
    for state in states[2:]:
        assert torch.equal(state.rows, decoded.rows)
        assert torch.equal(state.free, free[decoded.rows])
        assert torch.equal(state.tokens[~state.free], canvas.tokens[decoded.rows][~state.free])
    assert torch.equal(states[2].tokens, seen.seen[1][1].tokens[decoded.rows])


def test_without_more_candidates_than_are_kept_nothing_is_dropped() -> None:
    process, canvas = make_process("absorbing", 7), make_canvas([5, 4, 3])
    plain, _ = decode(Unconditional(), process, Restless(process, 11), canvas, 5)
    pruned, _ = decode(Unconditional(), process, Restless(process, 11), canvas, 5, prune_after=1, keep_candidates=1)
    assert torch.equal(plain.tokens, pruned.tokens)
    assert pruned.rows.tolist() == [0, 1, 2]


def test_after_the_last_iteration_nothing_is_dropped() -> None:
    """All candidates are finished then, and the best is chosen by the scores of what was written."""
    process, canvas = make_process("absorbing", 7), make_canvas([5, 4, 3])
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=3)
    plain, _ = decode(Unconditional(), process, Restless(process, 11), canvas, 5)
    for late in (5, 6):
        decoded, _ = decode(
            Unconditional(), process, Restless(process, 11), canvas, 5, prune_after=late, keep_candidates=1
        )
        assert decoded.rows.tolist() == [0, 1, 2]
        assert torch.equal(plain.tokens, decoded.tokens)
        assert torch.equal(plain.scores, decoded.scores)
