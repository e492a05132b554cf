"""DNDM: the distribution of transition times, the number of network calls, the counts of DNDM-k."""

import numpy as np
import pytest
import torch
from scipy import stats

from rdm.decoding.sampler import Canvas
from rdm.decoding.schedule import steps_to_visit
from rdm.decoding.transition import Action, Start
from rdm.decoding.transition_times import DNDM, TIMES, DNDMTopK, TransitionTimes
from rdm.diffusion import schedule as alphas
from rdm.errors import UserError
from tests.decoding.helpers import ContextDenoiser, decode, make_canvas, make_process, p_value, seeded

ROUTERS = {"dndm": DNDM, "dndm_beta": lambda: DNDM(5, 3), "dndm_k": DNDMTopK}


def times_of(router: TransitionTimes, steps: int, schedule: alphas.Schedule, count: int = 20_000) -> torch.Tensor:
    memo: dict[str, torch.Tensor] = {}
    free = torch.ones(count // 10, 10, dtype=torch.bool)
    router.plan(Start(make_process("absorbing", schedule=schedule), steps, free, memo, seeded(3)))
    return memo[TIMES]


@pytest.mark.parametrize("steps", [6, 4, 1])
def test_times_follow_the_noise_schedule(steps: int) -> None:
    """P(tau = t) is the loss of alpha between the visited steps."""
    alpha = np.array([1, 0.9, 0.7, 0.5, 0.3, 0.1, 0.04])
    grid = steps_to_visit(6, steps)[::-1]
    expected = np.zeros(7)
    expected[grid[1:]] = -np.diff(alpha[grid]) / (1 - alpha[-1])
    assert p_value(times_of(DNDM(), steps, alphas.Table(alpha.tolist())), expected) > 1e-3


@pytest.mark.parametrize(("a", "b"), [(5, 3), (0.5, 0.5), (2, 4)])
def test_times_follow_a_beta_distribution(a: float, b: float) -> None:
    """P(tau = t) = F(t / T) - F((t - 1) / T), whatever the noise schedule."""
    edges = stats.beta(a, b).cdf(np.linspace(0, 1, 5))
    times = times_of(DNDM(a, b), 4, alphas.Linear(4), 40_000)
    assert p_value(times, np.concatenate([[0], np.diff(edges)])) > 1e-3


@pytest.mark.parametrize("name", ROUTERS)
def test_only_transition_times_are_visited(name: str) -> None:
    """The network is called at the distinct times of the batch; the calls of a row are its own distinct times."""
    process, canvas, router = make_process("absorbing", 50), make_canvas([4, 7, 1], prefix=1), ROUTERS[name]()
    for seed in range(3):
        denoise = ContextDenoiser(process, 8)
        decoded, seen = decode(router, process, denoise, canvas, 50, seed)
        times = seen.seen[0][0].memo[TIMES]
        own = [set(times[row][~canvas.pinned[row]].tolist()) for row in range(3)]
        assert denoise.steps == sorted(set.union(*own), reverse=True)
        assert decoded.calls.tolist() == [len(each) for each in own]
        assert len(denoise.steps) <= 12


@pytest.mark.parametrize("steps", [20, 6])
@pytest.mark.parametrize("name", ROUTERS)
def test_expected_number_of_calls(name: str, steps: int) -> None:
    """``sum_t 1 - (1 - P(tau = t))^N`` for N tokens: the expected number of distinct transition times."""
    process, length, rows = make_process("absorbing", 20), 7, 3000
    edges = np.array(steps_to_visit(20, steps)[::-1])
    cdf = stats.beta(5, 3).cdf(edges / 20) if name == "dndm_beta" else edges / 20
    expected = (1 - (1 - np.diff(cdf)) ** length).sum()
    decoded, _ = decode(ROUTERS[name](), process, ContextDenoiser(process, length), make_canvas([length] * rows), steps)
    error = float(decoded.calls.double().std()) / rows**0.5
    assert float(decoded.calls.double().mean()) == pytest.approx(expected, abs=4 * error)


def test_each_token_is_denoised_at_its_time() -> None:
    """The network is called exactly there, and the initial noise stays until then."""
    process, canvas = make_process("uniform", 20), make_canvas([6, 3])
    _, seen = decode(DNDM(), process, ContextDenoiser(process, 6), canvas, 20)
    for state, outcome in seen:
        due = state.free & (state.memo[TIMES] == state.t)
        assert torch.equal(outcome.action == Action.PROPOSE, due)
        assert torch.equal(state.active, due)
        assert torch.equal(outcome.tokens[~due], state.tokens[~due])


def test_topk_counts_are_sampled() -> None:
    """k = #{tau >= t}; the best scores are denoised, the others sent back; idle rows do not change."""
    process, canvas = make_process("absorbing", 12), make_canvas([9] * 20)
    _, seen = decode(DNDMTopK(), process, ContextDenoiser(process, 9), canvas, 12)
    idle, sent_back = 0, 0
    for state, outcome in seen:
        reached = (state.memo[TIMES] >= state.t).sum(1)
        assert torch.equal(outcome.denoised.sum(1), reached)
        due = (state.memo[TIMES] == state.t).any(1)
        assert torch.equal(state.active, due[:, None].expand_as(state.active))
        assert torch.equal(outcome.tokens[~due], state.tokens[~due])
        idle, sent_back = idle + int((~due).sum()), sent_back + int((state.denoised & ~outcome.denoised).sum())
        lowest = state.scores.masked_fill(~outcome.denoised, float("inf")).min(1).values
        highest = state.scores.masked_fill(outcome.denoised, float("-inf")).max(1).values
        assert (lowest >= highest)[due].all()
    assert idle > 0
    assert sent_back > 0


@pytest.mark.parametrize("name", ROUTERS)
def test_pruned_rows_keep_their_times(name: str) -> None:
    """After pruning, each row still uses the times of its row in the canvas."""
    process, canvas = make_process("absorbing", 9), make_canvas([5, 9, 2, 6, 3, 8])
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=3)
    decoded, seen = decode(
        ROUTERS[name](), process, ContextDenoiser(process, 9), canvas, 9, prune_after=2, keep_candidates=1
    )
    state, outcome = seen.seen[-1]
    assert len(state.rows) == 2
    assert torch.equal(state.rows, decoded.rows)
    assert torch.equal(outcome.denoised, state.free)
    own = [set(state.memo[TIMES][row][~canvas.pinned[row]].tolist()) for row in decoded.rows.tolist()]
    assert decoded.calls[decoded.rows].tolist() == [len(times) for times in own]
    assert decoded.rows.tolist() != [0, 1]


@pytest.mark.parametrize("name", ROUTERS)
def test_canvas_without_free_positions(name: str) -> None:
    """One iteration without a network call returns the canvas."""
    process, canvas = make_process("absorbing", 5), make_canvas([0, 0], prefix=2)
    decoded, seen = decode(ROUTERS[name](), process, ContextDenoiser(process, 2), canvas, 5)
    assert len(seen) == 1
    assert decoded.calls.tolist() == [0, 0]
    assert torch.equal(decoded.tokens, canvas.tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"a": 5.0}, r"decoding\.transition\.a and b: set both"),
        ({"a": 5.0, "b": 0.0}, r"decoding\.transition\.a and b must be greater than 0, got 5\.0 and 0\.0"),
    ],
)
def test_invalid_arguments(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DNDM(**options)
