"""Adaptive routers: which tokens are accepted, the number of network calls, and early stopping."""

import math
from itertools import pairwise

import pytest
import torch

from rdm.decoding.adaptive import Adaptive, EntropyBound, Threshold, entropy
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
)

ROUTERS = {"threshold": lambda: Threshold(0.9), "entropy_bound": lambda: EntropyBound(0.4)}


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


@pytest.mark.parametrize("name", ROUTERS)
def test_last_iteration_denoises_the_rest(name: str) -> None:
    """``decoding.steps`` is the maximum number of iterations."""
    router: Adaptive = Threshold(1.0) if name == "threshold" else EntropyBound(0.0)
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
        (lambda: EntropyBound(-1), r"decoding\.transition\.gamma must be 0 or greater, got -1"),
    ],
)
def test_invalid_arguments(build: type[Adaptive], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build()
