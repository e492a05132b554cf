"""Transitions: ranking, the effect of actions, the recursion for ``b``, active positions, custom routers."""

import math
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rdm.decoding.adaptive import entropy
from rdm.decoding.routing import Ancestral, Commit
from rdm.decoding.transition import Action, Outcome, Progress, Router, State, actions, top_k
from tests.decoding.helpers import (
    MASK,
    VOCAB,
    ContextDenoiser,
    FixedActions,
    decode,
    make_canvas,
    make_process,
    make_sampler,
    make_state,
)

KEEP, NOISE, PROPOSE, REDRAW = Action
INF, NAN = math.inf, math.nan


# --- top_k -----------------------------------------------------------------------------------------------------------

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, -1e-12, -2e-12, -1e-7, -1e-45, -1.0, -1.0000001, -3e4, -INF, INF, NAN]),
    st.floats(-50, 0, width=32),
)
ROWS = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=9)


@settings(deadline=None, derandomize=True, max_examples=250)
@given(row=ROWS, k=st.integers(0, 11))
@example(row=[(0.0, True)] * 5, k=3)
@example(row=[(-INF, True)] * 5, k=3)
@example(row=[(NAN, True)] * 5, k=3)
@example(row=[(-2e-12, True), (-1e-12, True), (-3e-12, True), (0.0, False)], k=2)
def test_top_k(row: list[tuple[float, bool]], k: int) -> None:
    """Exactly min(k, available) positions, none worse than an excluded one, ties in favour of the left."""
    scores, among = [torch.tensor([values]) for values in zip(*row, strict=True)]
    scores = scores.float()
    chosen = top_k(scores, torch.tensor([k]), among)
    assert int(chosen.sum()) == min(k, int(among.sum()))
    assert not (chosen & ~among).any()
    values = [-INF if math.isnan(value) else value for value in scores[0].tolist()]  # NaN ranks last
    inside, outside = [(mask[0]).nonzero().flatten().tolist() for mask in (chosen, among & ~chosen)]
    for i, j in product(inside, outside):
        assert values[i] > values[j] or (values[i] == values[j] and i < j)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(rows=st.lists(st.lists(SCORES, min_size=4, max_size=4), min_size=1, max_size=4), data=st.data())
def test_top_k_rows_are_independent(rows: list[list[float]], data: st.DataObject) -> None:
    """Each row has its own k and positions, and the same result as alone."""
    flags = st.lists(st.booleans(), min_size=4, max_size=4)
    among = torch.tensor(data.draw(st.lists(flags, min_size=len(rows), max_size=len(rows))))
    k = torch.tensor(data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows))))
    scores = torch.tensor(rows)
    alone = torch.cat([top_k(scores[i : i + 1], k[i : i + 1], among[i : i + 1]) for i in range(len(rows))])
    assert torch.equal(top_k(scores, k, among), alone)


@pytest.mark.parametrize(
    "scores", [[torch.finfo(torch.float32).max, INF], [-INF, torch.finfo(torch.float32).min]], ids=["max", "min"]
)
def test_top_k_distinguishes_infinity_from_the_largest_float(scores: list[float]) -> None:
    """The second score is the greater one."""
    both = torch.ones(1, 2, dtype=torch.bool)
    assert top_k(torch.tensor([scores]), torch.tensor([1]), both).tolist() == [[False, True]]


# --- actions ---------------------------------------------------------------------------------------------------------


def test_actions_from_v1_and_v2() -> None:
    """``v1`` applies to denoised tokens, ``v2`` to noisy ones."""
    state = make_state([[2, 2, MASK, MASK]], denoised=[[True, True, False, False]])
    v1, v2 = torch.tensor([[True, False, True, False]]), torch.tensor([[False, True, False, True]])
    assert actions(state, v1, v2).tolist() == [[KEEP, NOISE, NOISE, PROPOSE]]


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("denoised", [True, False])
def test_every_action_on_every_state(action: Action, denoised: bool) -> None:
    """KEEP changes nothing, NOISE and REDRAW make noise, PROPOSE takes the proposal, also for a denoised token."""
    state = make_state([[3 if denoised else MASK]], denoised=[[denoised]], proposal=[[5]], scores=[[-0.7]])
    outcome = FixedActions(action).step(state)
    expected = {KEEP: state.tokens.item(), NOISE: MASK, PROPOSE: 5, REDRAW: MASK}[action]
    assert outcome.tokens.item() == expected
    assert outcome.denoised.item() == {KEEP: denoised, NOISE: False, PROPOSE: True, REDRAW: False}[action]
    assert outcome.stored.item() == pytest.approx(-0.7 if action == PROPOSE else 0.0)


@pytest.mark.parametrize("action", list(Action))
def test_pinned_positions_ignore_the_router(action: Action) -> None:
    """Pinned positions are unchanged and never count as denoised, whatever the action."""
    state = make_state([[4, MASK]], free=[[False, True]])
    outcome = FixedActions(action).step(state)
    assert outcome.tokens[0, 0] == 4
    assert outcome.action[0, 0] == KEEP
    assert not outcome.denoised[0, 0]


# --- custom routers --------------------------------------------------------------------------------------------------


class LeastEntropy(Router):
    """As commit, but ranked by the entropy of the whole distribution (Dream)."""

    def route(self, state: State) -> Tensor:
        confidence = torch.full(state.tokens.shape, -INF, dtype=torch.float64)
        confidence[state.active] = -entropy(state.logits)
        missing = (state.count - state.denoised.sum(1)).clamp(min=0)
        chosen = top_k(confidence, missing, state.noisy)
        return actions(state, v1=torch.ones_like(chosen), v2=chosen)


def test_router_that_reads_the_logits() -> None:
    """The proposal of higher probability has the higher entropy, so the two routers choose differently."""
    probs = torch.tensor(
        [
            [1e-9, 1e-9, 0.55, 0.15, 0.15, 0.15],  # the more probable proposal
            [1e-9, 1e-9, 0.51, 0.49, 1e-9, 1e-9],  # the lower entropy
        ]
    )
    state = make_state([[MASK, MASK]], logits=probs.log(), scores=[[math.log(0.55), math.log(0.51)]], count=[1])
    assert LeastEntropy().step(state).denoised.tolist() == [[False, True]]
    assert Commit().step(state).denoised.tolist() == [[True, False]]


class Blocks(LeastEntropy):
    """Fills blocks of ``size`` positions from left to right and calls the network in the current block only."""

    def __init__(self, size: int = 2) -> None:
        super().__init__()
        self.size = size

    def active(self, progress: Progress) -> Tensor:
        block = torch.arange(progress.tokens.shape[1]) // self.size
        return progress.noisy & (block == block.masked_fill(~progress.noisy, 99).min(1, keepdim=True).values)

    def route(self, state: State) -> Tensor:
        return torch.where(state.active, Action.PROPOSE, Action.KEEP)

    def finished(self, state: State, outcome: Outcome) -> bool:
        return bool((outcome.denoised | ~state.free).all())


def test_block_decoding_is_a_router() -> None:
    """Where the network is called and when decoding ends is up to the transition; the sampler is not changed."""
    process, canvas = make_process("absorbing", 12), make_canvas([7, 3, 0])
    decoded, seen = decode(Blocks(), process, ContextDenoiser(process, 7), canvas, 12)
    assert [state.active[0].nonzero().flatten().tolist() for state, _ in seen] == [[0, 1], [2, 3], [4, 5], [6]]
    assert decoded.calls.tolist() == [4, 2, 0]
    assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()


def test_arguments_of_a_custom_router_are_described() -> None:
    sampler = make_sampler(Blocks(size=3), 5)
    assert sampler.describe()["transition"] == {"class": "tests.decoding.test_transition.Blocks", "size": 3}


def test_memo_is_empty_at_the_start_of_every_run() -> None:
    class Counting(Ancestral):
        def route(self, state: State) -> Tensor:
            state.memo["count"] = state.memo.get("count", 0) + 1
            assert state.memo["count"] == state.iteration
            return super().route(state)

    process, router = make_process("uniform", 5), Counting()
    for _ in range(2):
        _, seen = decode(router, process, ContextDenoiser(process, 3), make_canvas([3]), 5)
        assert len(seen) == 5
