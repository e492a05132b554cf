"""Adaptive routers: which tokens are accepted, the number of network calls, and early stopping."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from rdm.decoding.adaptive import (
    KLASS,
    Adaptive,
    Editing,
    EntropyBound,
    Factor,
    RenoisingEntropyBound,
    Threshold,
    divergence,
    entropy,
)
from rdm.decoding.correcting import LeaveOneOut
from rdm.decoding.schedule import Linear
from rdm.decoding.trace import Trace
from rdm.errors import UserError
from tests.decoding.helpers import (
    MASK,
    NOISES,
    ContextDenoiser,
    decode,
    make_canvas,
    make_process,
    make_sampler,
    make_state,
    p_value,
)

ROUTERS = {
    "threshold": lambda: Threshold(0.9),
    "factor": lambda: Factor(0.3),
    "entropy_bound": lambda: EntropyBound(0.4),
    "klass": lambda: KLASS(0.5, max_divergence=0.3, history=1),
}
ONE_TOKEN = {"threshold": Threshold(1.0), "factor": Factor(0.0), "entropy_bound": EntropyBound(0.0)}


def test_threshold_accepts_all_certain_tokens() -> None:
    """Every noisy token at or above the threshold, otherwise exactly the best one; the threshold is a probability."""
    probs = torch.tensor([[0.9, 0.4, 0.6, 0.55, 0.95], [0.05, 0.13, 0.02, 0.08, 0.99]])
    denoised = [[False, False, False, False, True]] * 2
    state = make_state([[MASK, MASK, MASK, MASK, 3]] * 2, scores=probs.log(), denoised=denoised)
    outcome = Threshold(0.6).step(state)
    assert outcome.denoised.tolist() == [[True, False, True, False, True], [False, True, False, False, True]]


def test_threshold_one_denoises_one_token_per_call() -> None:
    process, canvas = make_process("absorbing", 20), make_canvas([9, 4, 1])
    decoded, seen = decode(Threshold(1.0), process, ContextDenoiser(process, 9), canvas, 20)
    for state, outcome in seen:
        assert torch.equal((outcome.denoised & ~state.denoised).sum(1), state.noisy.any(1).long())
    assert decoded.calls.tolist() == [9, 4, 1]
    assert len(seen) == 9


def test_threshold_one_accepts_certain_tokens() -> None:
    """Tokens of probability 1 pass every threshold, as with ``factor`` and ``entropy_bound`` at 0."""
    certain = torch.tensor([[0.0, -0.1, 0.0, -0.2]])
    for router in (Threshold(1.0), Factor(0.0)):
        assert router.step(make_state([[MASK] * 4], scores=certain)).denoised.tolist() == [[True, False, True, False]]


@pytest.mark.parametrize("noise", NOISES)
def test_threshold_zero_needs_one_call(noise: str) -> None:
    process, canvas = make_process(noise, 20), make_canvas([9, 4, 1])
    decoded, seen = decode(Threshold(0.0), process, ContextDenoiser(process, 9), canvas, 20)
    assert decoded.calls.tolist() == [1, 1, 1]
    assert len(seen) == 1


def test_entropy_bound_by_hand() -> None:
    """The largest prefix in order of entropy with sum H - max H <= gamma, for several bounds."""
    probs = torch.full((4, 6), 1e-12, dtype=torch.float64)
    for row, p in enumerate([0.7, 0.99, 0.5, 0.9]):
        probs[row, 2], probs[row, 3] = p, 1 - p
    h = {p: -p * math.log(p) - (1 - p) * math.log(1 - p) for p in (0.99, 0.9, 0.7)}
    state = make_state([[MASK] * 4], logits=probs.log())
    by_size = [
        (0.0, [False, True, False, False]),
        (h[0.99] + 0.001, [False, True, False, True]),
        (h[0.99] + h[0.9] + 0.001, [True, True, False, True]),
        (h[0.99] + h[0.9] + h[0.7] + 0.001, [True, True, True, True]),
    ]
    for gamma, expected in by_size:
        assert EntropyBound(gamma).step(state).denoised.tolist() == [expected]
    for (_, fewer), (gamma, _) in pairwise(by_size):
        assert EntropyBound(gamma - 0.002).step(state).denoised.tolist() == [fewer]


def test_entropy_of_denoised_and_pinned_positions_is_ignored() -> None:
    """Certain tokens that are not noisy use up nothing of the bound and are not proposed."""
    certain, even = [-30.0, -30.0, 30.0, -30.0, -30.0, -30.0], [-30.0, -30.0, 0.0, 0.0, -30.0, -30.0]
    state = make_state(
        [[3, 4, MASK, MASK]],
        free=[[True, False, True, True]],
        denoised=[[True, False, False, False]],
        logits=torch.tensor([even, certain, even]),
    )
    outcome = EntropyBound(0.1).step(state)
    assert outcome.tokens.tolist() == [[3, 4, 2, 2]]


def test_entropy_values() -> None:
    """ln V if uniform, 0 if certain even with logits of -inf, infinite if NaN."""
    logits = torch.tensor([[0.0] * 4, [0.0, *[-math.inf] * 3], [math.nan] * 4])
    assert entropy(logits).tolist() == pytest.approx([math.log(4), 0.0, math.inf])


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", ROUTERS)
def test_decoding_stops_when_nothing_is_noisy(name: str, noise: str) -> None:
    """In the first iteration after which every row is denoised; calls count those with noise in the row."""
    process, canvas = make_process(noise, 20), make_canvas([9, 4, 1, 0], prefix=1)
    decoded, seen = decode(ROUTERS[name](), process, ContextDenoiser(process, 10), canvas, 20)
    left = [(state.free & ~outcome.denoised).sum(1) for state, outcome in seen]
    assert 1 < len(seen) < 20
    assert [int(rows.sum()) == 0 for rows in left] == [False] * (len(seen) - 1) + [True]
    assert decoded.calls.tolist() == sum(state.noisy.any(1).long() for state, _ in seen).tolist()
    assert decoded.calls[3] == 0
    assert (int(decoded.calls.max()), int(decoded.calls[2])) == (len(seen), 1)


@pytest.mark.parametrize("name", ONE_TOKEN)
def test_last_iteration_denoises_the_rest(name: str) -> None:
    """``decoding.steps`` is the maximum number of iterations."""
    router: Adaptive = ONE_TOKEN[name]
    process, canvas = make_process("absorbing", 20), make_canvas([9, 4])
    decoded, seen = decode(router, process, ContextDenoiser(process, 9), canvas, 3)
    assert len(seen) == 3
    assert torch.equal(seen.seen[-1][1].denoised, ~canvas.pinned)
    assert decoded.calls.tolist() == [3, 3]


@pytest.mark.parametrize("name", ROUTERS)
def test_trace_has_one_frame_per_iteration_made(name: str) -> None:
    process, canvas, trace = make_process("absorbing", 20), make_canvas([9, 4]), Trace()
    decoded = make_sampler(ROUTERS[name](), 20).run(process, ContextDenoiser(process, 9), canvas, observer=trace)
    assert len(trace.frames) == int(decoded.calls.max()) + 1 < 21
    assert torch.equal(trace.frames[-1].tokens, decoded.tokens)
    assert not trace.frames[-1].noisy.any()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Threshold(-0.1), r"decoding\.transition\.threshold must be a probability in \[0, 1\], got -0\.1"),
        (lambda: Threshold(90), r"decoding\.transition\.threshold must be a probability in \[0, 1\], got 90"),
        (lambda: Factor(-1), r"decoding\.transition\.factor must be 0 or greater, got -1"),
        (lambda: KLASS(history=0), r"decoding\.transition\.history must be at least 1, got 0"),
        (lambda: Editing(edit_threshold=2), r"decoding\.transition\.edit_threshold must be a probability .*, got 2"),
        (lambda: EntropyBound(-1), r"decoding\.transition\.gamma must be 0 or greater, got -1"),
    ],
)
def test_invalid_arguments(build: type[Adaptive], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build()


# --- factor ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (0.0, [True, False, False, False]),  # only p = 1 would pass
        (0.2, [True, True, False, False]),  # needed: 0.9, 0.933, 0.95
        (0.5, [True, True, True, False]),  # needed: 0.75, 0.833, 0.875, 0.9
        (4.0, [True, True, True, True]),
    ],
)
def test_factor_by_hand(factor: float, expected: list[bool]) -> None:
    """Rank r is accepted while p_r >= 1 - factor / (r + 1)."""
    state = make_state([[MASK] * 4], scores=torch.tensor([[0.95, 0.94, 0.88, 0.5]]).log())
    assert Factor(factor).step(state).denoised.tolist() == [expected]


def test_factor_ignores_denoised_tokens() -> None:
    """Ranks are counted among noisy tokens, and the best one is accepted however improbable it is."""
    state = make_state(
        [[3, 3, MASK, MASK]],
        denoised=[[True, True, False, False]],
        scores=torch.tensor([[0.99, 0.99, 0.1, 0.2]]).log(),
    )
    assert Factor(0.5).step(state).denoised.tolist() == [[True, True, False, True]]


# --- KLASS -----------------------------------------------------------------------------------------------------------


def test_divergence_by_hand() -> None:
    p, q = torch.tensor([[0.5, 0.5], [0.9, 0.1]]), torch.tensor([[0.25, 0.75], [0.9, 0.1]])
    expected = [0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75), 0.0]
    assert divergence(p.log(), q.log()).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("history", [1, 2])
def test_klass_rule(history: int) -> None:
    """Against the rule written with loops: probability, divergence in the last iterations, else the schedule."""
    process, canvas = make_process("absorbing", 12), make_canvas([9, 5, 2], prefix=1)
    router, denoise = KLASS(0.4, max_divergence=0.1, history=history), ContextDenoiser(process, 10, sharpness=0.7)
    denoise.by_place[:] = denoise.by_place[:1]  # the same at every step, so that distributions become stable
    _, seen = decode(router, process, denoise, canvas, 12, schedule=Linear())
    probs: list[dict[tuple[int, int], torch.Tensor]] = []
    used = {"stable": 0, "scheduled": 0}
    for state, outcome in seen:
        here = [tuple(place) for place in state.active.nonzero().tolist()]
        probs.append(dict(zip(here, state.logits.double().softmax(-1), strict=True)))
        for row in range(3):
            noisy = state.noisy[row].nonzero()[:, 0].tolist()
            new = (outcome.denoised & ~state.denoised)[row].nonzero()[:, 0].tolist()
            if state.s == 0 or not noisy:
                assert new == noisy
                continue

            def stable(place: tuple[int, int]) -> bool:
                recent = probs[-history - 1 :]
                if len(recent) <= history or any(place not in each for each in recent):
                    return False
                pairs = pairwise(each[place] for each in recent)
                return all(float((q * (q / p).log())[2:].sum()) < 0.1 for p, q in pairs)

            certain = [n for n in noisy if float(state.scores[row, n].exp()) > 0.4 and stable((row, n))]
            if certain:
                assert new == certain
                used["stable"] += 1
            else:
                assert len(new) == max(1, int(state.count[row] - state.denoised[row].sum()))
                used["scheduled"] += 1
    assert all(used.values()), used


# --- editing ---------------------------------------------------------------------------------------------------------


def test_editing_replaces_only_different_and_probable_tokens() -> None:
    probs = torch.tensor([[0.99, 0.99, 0.9, 0.5]])
    state = make_state(
        [[3, 3, 3, MASK]],
        denoised=[[True, True, True, False]],
        proposal=[[4, 3, 4, 5]],
        scores=probs.log(),
        stored=[[-1.0, -1.0, -1.0, 0.0]],
    )
    outcome = Editing(threshold=0.9, edit_threshold=0.95).step(state)
    assert outcome.tokens.tolist() == [[4, 3, 3, 5]]
    assert outcome.stored[0].tolist() == pytest.approx([math.log(0.99), -1.0, -1.0, math.log(0.5)])


def test_editing_ends_when_nothing_changes() -> None:
    """Each row needs one call that changes nothing; with threshold 1 for edits that is one call more than threshold."""
    process, canvas = make_process("absorbing", 20), make_canvas([9, 4, 1, 0], prefix=1)
    plain, _ = decode(Threshold(0.9), process, ContextDenoiser(process, 10), canvas, 19)
    same, _ = decode(Editing(0.9, edit_threshold=1.0), process, ContextDenoiser(process, 10), canvas, 19)
    assert torch.equal(plain.tokens, same.tokens)
    assert (same.calls - plain.calls).tolist() == [1, 1, 1, 0]
    _, seen = decode(Editing(0.9, 0.5), process, ContextDenoiser(process, 10), canvas, 19)
    replaced = [(state.denoised & (outcome.tokens != state.tokens)).sum() for state, outcome in seen]
    assert sum(replaced) > 0


# --- entropy bound with renoising ------------------------------------------------------------------------------------


def test_renoising_has_no_memory() -> None:
    """Accepted positions take the proposal although they are denoised; all others are new noise."""
    certain, even = [-30.0, -30.0, 30.0, -30.0, -30.0, -30.0], [-30.0, -30.0, 0.0, 0.0, 0.0, 0.0]
    rows = 4000
    state = make_state(
        torch.tensor([[3, 4, 5]]).repeat(rows, 1),
        "uniform",
        denoised=torch.tensor([[True, True, False]]).repeat(rows, 1),
        proposal=torch.full((rows, 3), 2),
        logits=torch.tensor([certain, even, even]).repeat(rows, 1),
        count=torch.ones(rows, dtype=torch.long),
        scores=torch.zeros(rows, 3),
    )
    outcome = RenoisingEntropyBound(0.0).step(state)
    assert outcome.denoised.tolist() == [[True, False, False]] * rows
    assert (outcome.tokens[:, 0] == 2).all()
    assert p_value(outcome.tokens[:, 1], np.array([0, 0, 1, 1, 1, 1]) / 4) > 1e-3
    assert p_value(outcome.tokens[:, 2], np.array([0, 0, 1, 1, 1, 1]) / 4) > 1e-3


@pytest.mark.parametrize(
    ("router", "instead"),
    [(RenoisingEntropyBound(), "decoding=entropy_bound"), (LeaveOneOut(), "decoding=psi")],
    ids=["renoise", "leave_one_out"],
)
def test_routers_for_text_noise_refuse_masks(router: Adaptive, instead: str) -> None:
    with pytest.raises(UserError, match=f"needs noise that looks like text, not masks; use {instead}"):
        make_sampler(router, 4).check(make_process("absorbing", 4))
    for noise in ("uniform", "mixture", "unigram"):
        make_sampler(router, 4).check(make_process(noise, 4))
