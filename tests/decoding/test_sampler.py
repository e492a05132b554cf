"""The sampling loop: no noise at the end, scores, calls, legal numbers of steps, pruning."""

from itertools import product

import pytest
import torch
from torch import Tensor

from rdm.decoding.routing import PosteriorStep, Unconditional
from rdm.decoding.sampler import Canvas
from rdm.decoding.transition import Action
from rdm.errors import UserError
from tests.decoding.helpers import (
    ALL_ROUTERS,
    ANY_NUMBER_OF_STEPS,
    BARRED,
    CASES,
    DETERMINISTIC,
    FEWER_ITERATIONS,
    NOISES,
    ROUTERS,
    SCHEDULES,
    TOP_K,
    TRANSITIONS,
    VOCAB,
    ContextDenoiser,
    FixedScores,
    decode,
    make_canvas,
    make_process,
    make_sampler,
    p_value,
)

ROWS = 20_000
SIZE = VOCAB.size
MATCH = 1e-3


# --- no noise is left at the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("name", "noise"), CASES)
def test_ends_without_noise(name: str, noise: str, schedule: str) -> None:
    """For every M from 1 to T, with and without Gumbel noise: all denoised, pinned positions unchanged."""
    process, canvas = make_process(noise, 7), make_canvas([8, 5, 1, 0], prefix=1)
    denoise = ContextDenoiser(process, 9)
    for iterations, scale in product(range(1, 8), (0.0, 5.0) if name in TOP_K else (None,)):
        router = ALL_ROUTERS[name]() if scale is None else ROUTERS[name](gumbel_scale=scale)
        decoded, seen = decode(router, process, denoise, canvas, iterations, schedule=SCHEDULES[schedule])
        assert len(seen) == iterations or (name in FEWER_ITERATIONS and 0 < len(seen) < iterations)
        assert torch.equal(seen.seen[-1][1].denoised, ~canvas.pinned)
        assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()
        for _, outcome in seen:
            assert torch.equal(outcome.tokens[canvas.pinned], canvas.tokens[canvas.pinned])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("noise", NOISES)
def test_posterior_step_ends_without_noise(noise: str, temperature: float) -> None:
    """No mask is left, and pinned positions are unchanged."""
    process, canvas = make_process(noise, 7), make_canvas([8, 5, 1, 0], prefix=1)
    denoise = ContextDenoiser(process, 9)
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
def test_degenerate_scores_keep_the_counts(name: str, scale: float, values: tuple[float, ...]) -> None:
    """Equal, infinite and NaN scores: as many tokens as the schedule demands, and all at the end."""
    process, canvas = make_process("absorbing", 7), make_canvas([8, 5, 1], prefix=1)
    denoise = ContextDenoiser(process, 9)
    for iterations in (1, 3, 5, 7):
        router = ROUTERS[name](gumbel_scale=scale)
        decoded, seen = decode(router, process, denoise, canvas, iterations, scores=FixedScores(*values))
        for state, outcome in seen:
            after = outcome.denoised.sum(1)
            assert (after >= state.count).all() if name == "cond" else torch.equal(after, state.count)
        assert torch.equal(seen.seen[-1][1].denoised, ~canvas.pinned)
        assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()


@pytest.mark.parametrize("name", TOP_K)
def test_certain_denoiser_leaves_no_mask(name: str) -> None:
    """All scores are exactly 0 (in the official code masks survive in this case)."""

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
    """The first state is a sample of ``q_noise`` at every free position, independent of the canvas."""
    process = make_process(noise, 4)
    canvas = make_canvas([2] * ROWS, prefix=1)
    _, seen = decode(Unconditional(), process, ContextDenoiser(process, 3), canvas, 1)
    state, _ = seen.seen[0]
    assert p_value(state.tokens[:, 1:], process.noise.probs.numpy()) > MATCH
    assert torch.equal(state.tokens[:, 0], canvas.tokens[:, 0])
    assert not state.denoised.any()
    assert not state.stored.any()


@pytest.mark.parametrize("steps", [1, 3, 6])
@pytest.mark.parametrize("name", TRANSITIONS)
def test_row_score_is_the_mean_of_stored_scores(name: str, steps: int) -> None:
    """The mean over free positions of the score when last denoised; 0 without free positions."""
    process, canvas = make_process("absorbing", 6), make_canvas([7, 4, 1, 0], prefix=2)
    decoded, seen = decode(TRANSITIONS[name](), process, ContextDenoiser(process, 9), canvas, steps)
    free = ~canvas.pinned
    last = torch.full(free.shape, float("nan"))
    for state, outcome in seen:
        if name == "posterior":  # stores a new score at every position
            log_probs = state.logits.log_softmax(-1)
            last[free] = log_probs[torch.arange(len(log_probs)), outcome.tokens[free]]
        else:
            taken = outcome.action == Action.PROPOSE
            last[taken] = state.scores[taken]
    expected = [float(row[mask].mean()) if mask.any() else 0.0 for row, mask in zip(last, free, strict=True)]
    assert decoded.scores.tolist() == pytest.approx(expected, rel=1e-5)


def test_state_scores_are_log_probs_of_the_proposal() -> None:
    process, canvas = make_process("uniform", 5), make_canvas([6, 3], prefix=1)
    _, seen = decode(Unconditional(), process, ContextDenoiser(process, 7), canvas, 5, temperature=1.0)
    for state, _ in seen:
        log_probs = state.logits.log_softmax(-1)
        chosen = log_probs.gather(1, state.proposal[state.free][:, None]).squeeze(1)
        torch.testing.assert_close(state.scores[state.free], chosen)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_rows_are_independent(name: str) -> None:
    """A row has the same text, score and calls alone and in a batch with longer rows, that is with more padding."""
    process = make_process("absorbing", 8)
    denoise, canvas = ContextDenoiser(process, 11), make_canvas([5, 9, 2], prefix=2)
    together, _ = decode(ROUTERS[name](), process, denoise, canvas, 6)
    for row, length in enumerate([5, 9, 2]):
        one = Canvas(canvas.tokens[row : row + 1, : length + 2], canvas.pinned[row : row + 1, : length + 2])
        alone, _ = decode(ROUTERS[name](), process, denoise, one, 6)
        assert alone.tokens[0].tolist() == together.tokens[row, : length + 2].tolist()
        assert alone.scores[0].item() == pytest.approx(together.scores[row].item(), rel=1e-5)
        assert alone.calls[0] == together.calls[row]


def test_reproducible_by_seed() -> None:
    """Equal seeds give equal texts, different seeds different ones."""
    process, canvas = make_process("uniform", 6), make_canvas([8] * 4)
    runs = [
        decode(Unconditional(), process, ContextDenoiser(process, 8), canvas, 6, seed, temperature=1.0)[
            0
        ].tokens.tolist()
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(("steps", "expected"), [(1, [1.0]), (2, [1.0, 0.2]), (5, [1.0, 0.8, 0.6, 0.4, 0.2])], ids=str)
def test_annealed_temperature_along_the_loop(
    steps: int, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first iteration uses ``temperature``, the last one ``final_temperature``."""
    process, used = make_process("absorbing", 5), []
    monkeypatch.setattr("rdm.decoding.proposal.sample_ids", lambda logits, t, *_: used.append(t) or logits.argmax(-1))
    denoise = ContextDenoiser(process, 4)
    decode(Unconditional(), process, denoise, make_canvas([4]), steps, temperature=1.0, final_temperature=0.2)
    assert used == pytest.approx(expected)


def test_canvas_is_not_modified() -> None:
    process, canvas = make_process("absorbing", 5), make_canvas([6, 2], prefix=1)
    before = canvas.tokens.clone()
    decode(Unconditional(), process, ContextDenoiser(process, 7), canvas, 5)
    assert torch.equal(canvas.tokens, before)


@pytest.mark.parametrize("options", [{"steps": 0}, {"steps": -1}, {"steps": 1, "length_candidates": 0}], ids=str)
def test_invalid_counts(options: dict[str, int]) -> None:
    """Counts below one raise a UserError."""
    with pytest.raises(UserError):
        make_sampler(Unconditional(), **options)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_steps_beyond_the_trained_number(name: str) -> None:
    """Refused by ``check`` and ``run`` with the same message, unless the transition can visit a step repeatedly."""
    process, canvas = make_process("absorbing", 5), make_canvas([4])
    sampler = make_sampler(TRANSITIONS[name](), 6)
    if name in ANY_NUMBER_OF_STEPS:
        sampler.check(process)
        assert sampler.run(process, ContextDenoiser(process, 4), canvas).calls.tolist() <= [6]
        return
    message = r"^decoding\.steps=6 exceeds diffusion\.num_steps=5 \(the number of steps this model was trained with\)$"
    for attempt in (lambda: sampler.check(process), lambda: sampler.run(process, ContextDenoiser(process, 4), canvas)):
        with pytest.raises(UserError, match=message):
            attempt()


@pytest.mark.parametrize("name", TRANSITIONS)
def test_check_leaves_the_random_state_unchanged(name: str) -> None:
    before = torch.get_rng_state()
    make_sampler(TRANSITIONS[name](), 4).check(make_process("absorbing", 4))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_calls_count_the_iterations_with_an_active_position(name: str) -> None:
    """Rows without an active position cost no call; those that are pruned have cost the calls before."""
    process, canvas = make_process("absorbing", 9), make_canvas([8, 1, 0, 5, 2, 7])
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=3)
    for options in ({}, {"prune_after": 3, "keep_candidates": 2}):
        decoded, seen = decode(TRANSITIONS[name](), process, ContextDenoiser(process, 8), canvas, 9, **options)
        expected = torch.zeros(6, dtype=torch.long)
        for state, _ in seen:
            expected[state.rows] += state.active.any(1)
        assert decoded.calls.tolist() == expected.tolist()
        assert decoded.calls[2] == 0
    if name in ("uncond", "uncond_margin", "cond", "p2", "psi", "posterior"):
        assert set(decoded.calls.tolist()) <= {0, 3, 9}


# --- pruning of candidates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRANSITIONS)
@pytest.mark.parametrize("noise", NOISES)
def test_pruning_keeps_the_best_of_each_source(noise: str, name: str) -> None:
    process, canvas = make_process(noise, 7), make_canvas([5, 9, 2, 6, 3, 8], prefix=1)
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=3)
    decoded, seen = decode(
        TRANSITIONS[name](), process, ContextDenoiser(process, 11), canvas, 5, prune_after=2, keep_candidates=2
    )
    states = [state for state, _ in seen]
    pruned = 3 if name not in FEWER_ITERATIONS else len(states) - 2
    assert pruned >= 1
    assert [len(state.tokens) for state in states] == [6, 6, *[4] * pruned]
    # By hand: the mean score of the second iteration over the free positions; some methods have scores at some only.
    free = ~canvas.pinned
    scored = free if not name.startswith(("dndm", "jacobi")) else free & (states[1].active | states[1].denoised)
    means = [states[1].scores[row][scored[row]].mean().nan_to_num(-1e9).item() for row in range(6)]
    best = [sorted(group, key=means.__getitem__)[1:] for group in ([0, 1, 2], [3, 4, 5])]
    assert [sorted(pair) for pair in decoded.rows.view(2, 2).tolist()] == [sorted(pair) for pair in best]
    for state in states[2:]:
        assert torch.equal(state.rows, decoded.rows)
        assert torch.equal(state.free, free[decoded.rows])
        assert torch.equal(state.tokens[~state.free], canvas.tokens[decoded.rows][~state.free])
    assert torch.equal(states[2].tokens, seen.seen[1][1].tokens[decoded.rows])


def test_pruning_needs_more_candidates_than_are_kept() -> None:
    process, canvas = make_process("absorbing", 7), make_canvas([5, 4, 3])
    plain, _ = decode(Unconditional(), process, ContextDenoiser(process, 11), canvas, 5)
    pruned, _ = decode(
        Unconditional(), process, ContextDenoiser(process, 11), canvas, 5, prune_after=1, keep_candidates=1
    )
    assert torch.equal(plain.tokens, pruned.tokens)
    assert pruned.rows.tolist() == [0, 1, 2]


def test_no_pruning_after_the_last_iteration() -> None:
    """All candidates are finished, and the selection uses their stored scores."""
    process, canvas = make_process("absorbing", 7), make_canvas([5, 4, 3])
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=3)
    plain, _ = decode(Unconditional(), process, ContextDenoiser(process, 11), canvas, 5)
    for late in (5, 6):
        decoded, _ = decode(
            Unconditional(), process, ContextDenoiser(process, 11), canvas, 5, prune_after=late, keep_candidates=1
        )
        assert decoded.rows.tolist() == [0, 1, 2]
        assert torch.equal(plain.tokens, decoded.tokens)
        assert torch.equal(plain.scores, decoded.scores)
