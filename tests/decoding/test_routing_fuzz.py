"""Properties of every router in random states: every noise, scores that may be infinite or NaN."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rdm.decoding.transition import Action, Start, State, Transition
from rdm.errors import UserError
from tests.decoding.helpers import (
    ALL_ROUTERS,
    ANY_NUMBER_OF_STEPS,
    CASES,
    MASK,
    NOISES,
    REPLACE,
    ROUTERS,
    SCHEDULES,
    TOP_K,
    TRANSITIONS,
    VOCAB,
    ContextDenoiser,
    Recorder,
    make_canvas,
    make_process,
    make_sampler,
    make_state,
    seeded,
)

WORDS = st.integers(2, VOCAB.size - 1)
SCORES = st.floats(-50, 0) | st.sampled_from([float("-inf"), float("nan"), -0.0])


@st.composite
def states(draw: st.DrawFn) -> State:
    """Up to three rows of up to six tokens, between steps 4 and 0."""
    rows, length = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    noise = draw(st.sampled_from(sorted(NOISES)))
    process = make_process(noise)

    def table(elements: st.SearchStrategy) -> list:
        return [[draw(elements) for _ in range(length)] for _ in range(rows)]

    free = torch.tensor(table(st.booleans()))
    denoised = torch.tensor(table(st.booleans())) & free
    words = torch.tensor(table(WORDS))
    noised = process.noise.sample(words, seeded(draw(st.integers(0, 99))))
    t = draw(st.integers(1, 4))
    return make_state(
        torch.where(denoised | ~free, words, noised),
        process.noise,
        free=free,
        denoised=denoised,
        proposal=torch.where(free, torch.tensor(table(WORDS)), words),
        scores=table(SCORES),
        stored=table(SCORES),
        count=torch.tensor([draw(st.integers(0, int(count))) for count in free.sum(1)]),
        t=t,
        s=draw(st.integers(0, t)),  # s == t: a plan may visit a step repeatedly
        noise_rate=draw(st.floats(0, 1)),
        generator=seeded(draw(st.integers(0, 99))),
        logits=torch.randn(int(free.sum()), VOCAB.size, generator=seeded()).index_fill(1, torch.tensor([0, 1]), -3e4),
    )


def planned(transition: Transition, state: State) -> Transition:
    """Fill the memo of the state as a decoding of four steps would."""
    try:
        transition.check_noise(state.process)
    except UserError:
        assert name_of_noise(state) == "Absorbing"
        assume(False)
    transition.plan(Start(state.process, 4, state.free, state.memo, state.generator))
    return transition


def name_of_noise(state: State) -> str:
    return type(state.process.noise).__name__


@pytest.mark.parametrize("name", ALL_ROUTERS)
@given(state=states())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_outcome_follows_the_transition_formula(name: str, state: State) -> None:
    """``x_s = b (v1 x_t + (1 - v1) u1) + (1 - b) (v2 x0_hat + (1 - v2) u2)`` and ``b <- where(b, v1, v2)``."""
    before = state.tokens.clone()
    outcome = planned(ALL_ROUTERS[name](), state).step(state)
    keep, noised, propose, redrawn = (outcome.action == action for action in Action)
    noise = noised | redrawn
    assert torch.equal(state.tokens, before), "a router changes nothing in place"
    assert torch.equal(outcome.tokens[~state.free], before[~state.free])
    assert not (outcome.denoised & ~state.free).any()
    assert torch.equal(outcome.tokens[keep], before[keep])
    own_proposals = name == "leave_one_out" and state.s == state.t
    assert own_proposals or torch.equal(outcome.tokens[propose], state.proposal[propose])
    assert (state.process.noise.prob(outcome.tokens[noise]) > 0).all()
    assert torch.equal(outcome.denoised, (state.denoised & ~noise) | propose)
    assert name in REPLACE or not (propose & state.denoised).any()
    same_scores = torch.equal(outcome.stored[propose], state.scores[propose])
    assert same_scores or own_proposals or state.scores[propose].isnan().any()
    assert torch.equal(outcome.stored[~propose].nan_to_num(), state.stored[~propose].nan_to_num())


@pytest.mark.parametrize("name", TOP_K)
@given(state=states(), scale=st.sampled_from([0.0, 5.0]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_number_of_denoised_tokens(name: str, state: State, scale: float) -> None:
    """Exactly ``k``, or more if the router may keep tokens outside the top-k; all if ``k`` is the length."""
    outcome = ROUTERS[name](gumbel_scale=scale).step(state)
    counts, already = outcome.denoised.sum(1), state.denoised.sum(1)
    if name in ("uncond", "mask_predict", "p2"):
        assert torch.equal(counts, state.count)
    elif name == "commit":
        assert torch.equal(counts, torch.maximum(state.count, already))
        assert not (state.denoised & ~outcome.denoised).any()
    else:
        assert (counts >= state.count).all()
    state.count = state.free.sum(1)
    assert torch.equal(ROUTERS[name]().step(state).denoised, state.free)


@pytest.mark.parametrize("name", {**TRANSITIONS, **ALL_ROUTERS})
@given(state=states())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_no_noise_at_step_zero(name: str, state: State) -> None:
    """From any step directly to 0: every free token is denoised, and none is a mask."""
    state.s, state.count = 0, state.free.sum(1)
    outcome = planned({**TRANSITIONS, **ALL_ROUTERS}[name](), state).step(state)
    assert torch.equal(outcome.denoised, state.free)
    assert not (outcome.tokens[state.free] == MASK).any()


@pytest.mark.parametrize("name", ALL_ROUTERS)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=12)
def test_complete_decodings(name: str, data: st.DataObject) -> None:
    """Every router, noise, canvas, schedule and wrapper: no noise is left, and nothing pinned has changed."""
    noise = data.draw(st.sampled_from([noise for router, noise in CASES if router == name]))
    lengths = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    canvas = make_canvas(lengths, prefix=data.draw(st.integers(0, 2)))
    assume(canvas.tokens.shape[1] > 0)
    trained = data.draw(st.integers(1, 6))
    steps = data.draw(st.integers(1, 12 if name in ANY_NUMBER_OF_STEPS else trained))
    process = make_process(noise, trained)
    options = {
        "schedule": SCHEDULES[data.draw(st.sampled_from(sorted(SCHEDULES)))],
        "temperature": data.draw(st.sampled_from([0.0, 1.0])),
        "block": data.draw(st.none() | st.integers(1, 8)),
        "stop_on_convergence": data.draw(st.none() if name == "jacobi" else st.none() | st.integers(1, 2)),
    }
    denoise = ContextDenoiser(process, canvas.tokens.shape[1])

    def one_row_at_a_time(tokens: Tensor, t: Tensor, active: Tensor) -> Tensor:
        rows = zip(tokens.split(1), t.split(1), active.split(1), strict=True)
        return torch.cat([denoise(*row) for row in rows])

    sampler, recorder = make_sampler(ALL_ROUTERS[name](), steps, **options), Recorder()
    sampler.check(process)
    decoded = sampler.run(process, one_row_at_a_time, canvas, seeded(data.draw(st.integers(0, 9))), recorder)
    free = ~canvas.pinned
    assert VOCAB.is_ordinary(decoded.tokens[free]).all()
    assert decoded.scores.isfinite().all()
    assert (decoded.calls <= len(recorder)).all()
    assert all(torch.equal(outcome.tokens[~free], canvas.tokens[~free]) for _, outcome in recorder)
    assert all(not (state.active & ~free).any() for state, _ in recorder)
    assert torch.equal(recorder.seen[-1][1].denoised, free)
