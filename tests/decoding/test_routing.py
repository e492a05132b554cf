"""Routers: ranking, the rules of each, the recursion for ``b``, and room for later methods."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rdm.decoding.adaptive import entropy
from rdm.decoding.routing import Ancestral, Commit, Conditional, MaskPredict, Unconditional
from rdm.decoding.transition import Action, Outcome, Progress, Router, State, actions, top_k
from rdm.errors import UserError
from tests.decoding.helpers import (
    MASK,
    NOISES,
    ROUTERS,
    SCHEDULES,
    TOP_K,
    VOCAB,
    Restless,
    decode,
    make_canvas,
    make_process,
    make_sampler,
    make_state,
    p_value,
    seeded,
)

KEEP, NOISE, PROPOSE = Action.KEEP, Action.NOISE, Action.PROPOSE
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
    """Exactly min(k, available) candidates, none of them worse than one left out, equal scores from the left."""
    scores, among = [torch.tensor([values]) for values in zip(*row, strict=True)]
    scores = scores.float()
    chosen = top_k(scores, torch.tensor([k]), among)
    assert int(chosen.sum()) == min(k, int(among.sum()))
    assert not (chosen & ~among).any()
    values = [-INF if math.isnan(value) else value for value in scores[0].tolist()]  # not a number is as bad as it gets
    inside, outside = [(mask[0]).nonzero().flatten().tolist() for mask in (chosen, among & ~chosen)]
    for i, j in product(inside, outside):
        assert values[i] > values[j] or (values[i] == values[j] and i < j)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(rows=st.lists(st.lists(SCORES, min_size=4, max_size=4), min_size=1, max_size=4), data=st.data())
def test_top_k_rows_are_independent(rows: list[list[float]], data: st.DataObject) -> None:
    """A batch gives what its rows give alone, each with its own k and candidates."""
    flags = st.lists(st.booleans(), min_size=4, max_size=4)
    among = torch.tensor(data.draw(st.lists(flags, min_size=len(rows), max_size=len(rows))))
    k = torch.tensor(data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows))))
    scores = torch.tensor(rows)
    alone = torch.cat([top_k(scores[i : i + 1], k[i : i + 1], among[i : i + 1]) for i in range(len(rows))])
    assert torch.equal(top_k(scores, k, among), alone)


@pytest.mark.parametrize(
    "scores", [[torch.finfo(torch.float32).max, INF], [-INF, torch.finfo(torch.float32).min]], ids=["max", "min"]
)
def test_top_k_tells_infinity_from_the_largest_number(scores: list[float]) -> None:
    """The second score is the greater one, if only just."""
    both = torch.ones(1, 2, dtype=torch.bool)
    assert top_k(torch.tensor([scores]), torch.tensor([1]), both).tolist() == [[False, True]]


# --- the rules of each router, on states made by hand ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("router", "expected"),
    [
        (Unconditional(), [KEEP, NOISE, PROPOSE, NOISE]),  # the two best scores now: positions 0 and 2
        (MaskPredict(), [NOISE, KEEP, PROPOSE, NOISE]),  # ranked by the stored score where denoised: 1 and 2
        (Conditional(), [KEEP, KEEP, PROPOSE, NOISE]),  # position 1 fell, but the network proposes another token
        (Commit(), [KEEP, KEEP, NOISE, NOISE]),  # two are denoised already
    ],
    ids=["uncond", "mask_predict", "cond", "commit"],
)
def test_rules_by_hand(router: Router, expected: list[Action]) -> None:
    """One state on which the four top-k routers all decide differently."""
    state = make_state(
        [[2, 3, MASK, MASK]],
        denoised=[[True, True, False, False]],
        stored=[[-1.0, -0.2, 0.0, 0.0]],
        scores=[[-0.1, -2.0, -0.5, -3.0]],
        proposal=[[2, 5, 4, 5]],
        count=[2],
    )
    outcome = router.step(state)
    assert outcome.action.tolist() == [expected]
    tokens = {KEEP: state.tokens, NOISE: torch.full_like(state.tokens, MASK), PROPOSE: state.proposal}
    assert outcome.tokens.tolist() == [[int(tokens[a][0, n]) for n, a in enumerate(expected)]]
    assert outcome.denoised.tolist() == [[a != NOISE for a in expected]]
    # Only what was just denoised has a new score; a token that was kept keeps the old one.
    taken = torch.tensor([expected]) == PROPOSE
    assert torch.equal(outcome.stored, torch.where(taken, state.scores, state.stored))


@pytest.mark.parametrize(("outside", "fell", "same"), list(product([True, False], repeat=3)))
def test_cond_sends_back_only_under_three_conditions(outside: bool, fell: bool, same: bool) -> None:
    """A denoised token goes back exactly if it is outside the top-k, its score fell and the proposal is the same."""
    score = -1.0
    state = make_state(
        [[3, MASK, MASK]],
        denoised=[[True, False, False]],
        scores=[[score, -0.5 if outside else -2.0, -3.0]],
        stored=[[-0.9 if fell else score, 0.0, 0.0]],  # an equal score has not fallen
        proposal=[[3 if same else 4, 5, 5]],
        count=[1],
    )
    outcome = Conditional().step(state)
    back = outside and fell and same
    assert outcome.action[0, 0] == (NOISE if back else KEEP)
    assert outcome.tokens[0, 0] == (MASK if back else 3)
    assert outcome.denoised[0, 0] == (not back)


def test_commit_fills_up_to_the_count() -> None:
    """Commit counts what is denoised already and takes the best noisy ones only, however good the others score."""
    state = make_state(
        [[2, MASK, MASK, MASK, MASK]],
        denoised=[[True, False, False, False, False]],
        free=[[True, True, True, True, False]],
        scores=[[-9.0, -3.0, -1.0, -2.0, 0.0]],
        count=[3],
    )
    assert Commit().step(state).action.tolist() == [[KEEP, NOISE, PROPOSE, PROPOSE, KEEP]]


def test_actions_from_v1_and_v2() -> None:
    """``v1`` speaks for denoised tokens, ``v2`` for noisy ones."""
    state = make_state([[2, 2, MASK, MASK]], denoised=[[True, True, False, False]])
    v1, v2 = torch.tensor([[True, False, True, False]]), torch.tensor([[False, True, False, True]])
    assert actions(state, v1, v2).tolist() == [[KEEP, NOISE, NOISE, PROPOSE]]


class Scripted(Router):
    """Does what it is told."""

    def __init__(self, script: Tensor | Action, **options: bool) -> None:
        super().__init__(**options)
        self.script = script

    def route(self, state: State) -> Tensor:
        return torch.full_like(state.tokens, self.script) if isinstance(self.script, Action) else self.script


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("denoised", [True, False])
def test_every_action_on_every_state(action: Action, denoised: bool) -> None:
    """KEEP leaves token and ``b`` alone, NOISE makes noise, PROPOSE takes the proposal, also over a denoised token."""
    state = make_state([[3 if denoised else MASK]], denoised=[[denoised]], proposal=[[5]], scores=[[-0.7]])
    outcome = Scripted(action).step(state)
    expected = {KEEP: state.tokens.item(), NOISE: MASK, PROPOSE: 5}[action]
    assert outcome.tokens.item() == expected
    assert outcome.denoised.item() == {KEEP: denoised, NOISE: False, PROPOSE: True}[action]
    assert outcome.stored.item() == pytest.approx(-0.7 if action == PROPOSE else 0.0)


@pytest.mark.parametrize("action", list(Action))
def test_pinned_positions_ignore_the_router(action: Action) -> None:
    """Whatever a router says of a pinned position, it stays, and is not counted as denoised."""
    state = make_state([[4, MASK]], free=[[False, True]])
    outcome = Scripted(action).step(state)
    assert outcome.tokens[0, 0] == 4
    assert outcome.action[0, 0] == KEEP
    assert not outcome.denoised[0, 0]


# --- randomness: Gumbel noise on the ranking, noise for what is sent back ---------------------------------------------


@pytest.mark.parametrize(("scale", "rate"), [(1.0, 0.5), (5.0, 0.5), (2.0, 1.0)])
@pytest.mark.parametrize("router", [Unconditional, Conditional, Commit, MaskPredict])
def test_gumbel_ranking(router: type[Router], scale: float, rate: float) -> None:
    """With k = 1 the chosen position is a draw from softmax(score / (scale * noise rate))."""
    scores = torch.tensor([0.0, -1.0, -0.4, -2.5])
    rows = 20_000
    state = make_state(
        torch.full((rows, 4), MASK),
        scores=scores.expand(rows, -1),
        count=torch.ones(rows, dtype=torch.long),
        noise_rate=rate,
        generator=seeded(7),
    )
    taken = router(gumbel_scale=scale).step(state).denoised
    assert (taken.sum(1) == 1).all()
    assert p_value(taken.long().argmax(1), (scores.double() / (scale * rate)).softmax(-1).numpy()) > 1e-3


@pytest.mark.parametrize("name", TOP_K)
def test_gumbel_vanishes_with_the_noise_rate(name: str) -> None:
    """At noise rate 0 (the last iteration) the ranking is by score alone, whatever the scale."""
    state = make_state([[MASK] * 4] * 50, scores=[[-0.3, -0.1, -0.2, -0.4]] * 50, count=[2] * 50, noise_rate=0.0)
    assert ROUTERS[name](gumbel_scale=1e6).step(state).denoised.tolist() == [[False, True, True, False]] * 50


def test_mask_predict_adds_no_noise_to_stored_scores() -> None:
    """Denoised tokens are ranked by the stored score as it is: only noisy ones compete at random."""
    rows = 200
    state = make_state(
        torch.tensor([[2, 3, MASK]]).expand(rows, -1),
        denoised=torch.tensor([[True, True, False]]).expand(rows, -1),
        stored=torch.tensor([[-0.5, -0.6, 0.0]]).expand(rows, -1),
        scores=torch.tensor([[0.0, 0.0, -0.55]]).expand(rows, -1),
        count=torch.ones(rows, dtype=torch.long),
    )
    chosen = MaskPredict(gumbel_scale=1.0).step(state).denoised
    assert not chosen[:, 1].any()
    assert chosen[:, 0].any()
    assert chosen[:, 2].any()


@pytest.mark.parametrize("name", TOP_K)
def test_gumbel_changes_the_result_by_seed(name: str) -> None:
    """A Gumbel scale changes what is decoded; the same seed gives the same text again, another seed another one."""
    process = make_process("absorbing", 8)
    denoise, canvas = Restless(process, 12), make_canvas([10] * 8, prefix=2)

    def run(scale: float, seed: int) -> list[list[int]]:
        return decode(ROUTERS[name](gumbel_scale=scale), process, denoise, canvas, 8, seed)[0].tokens.tolist()

    assert run(0.0, 1) == run(0.0, 2)
    assert run(5.0, 1) == run(5.0, 1)
    assert run(5.0, 1) != run(5.0, 2)
    assert run(5.0, 1) != run(0.0, 1)


@pytest.mark.parametrize("name", TOP_K)
def test_negative_gumbel_scale(name: str) -> None:
    """A negative scale is refused."""
    with pytest.raises(UserError):
        ROUTERS[name](gumbel_scale=-1.0)


def send_back(noise: str, interpolates: bool, rows: int = 20_000) -> Outcome:
    """Many denoised tokens of id 3, all sent back from t = 3 (alpha 1/4) to s = 2 (alpha 1/2)."""
    state = make_state(
        torch.full((rows, 1), 3), noise, denoised=torch.ones(rows, 1, dtype=torch.bool), generator=seeded(8)
    )
    return Scripted(NOISE, sent_back_interpolates=interpolates).step(state)


@pytest.mark.parametrize("noise", ["uniform", "mixture", "unigram"])
@pytest.mark.parametrize("interpolates", [True, False])
def test_sent_back_where_noise_looks_like_text(noise: str, interpolates: bool) -> None:
    """Sent back from ``q_noise``, or from ``q_noise(x_t)``, which keeps the token with alpha_t / alpha_s = 1/2."""
    outcome = send_back(noise, interpolates)
    fresh = NOISES[noise]().probs.numpy()
    kept = 0.5 * np.eye(VOCAB.size)[3] + 0.5 * fresh
    assert p_value(outcome.tokens, kept if interpolates else fresh) > 1e-3
    assert p_value(outcome.tokens, fresh if interpolates else kept) < 1e-6
    assert not outcome.denoised.any()


@pytest.mark.parametrize("interpolates", [True, False])
def test_sent_back_where_noise_is_a_mask(interpolates: bool) -> None:
    """For absorbing noise the option changes nothing: what goes back to noise is a mask."""
    assert (send_back("absorbing", interpolates, rows=200).tokens == MASK).all()


@pytest.mark.parametrize(("noise", "differs"), [("uniform", True), ("absorbing", False)])
@pytest.mark.parametrize("name", ["uncond", "cond", "mask_predict"])
def test_sent_back_option_in_the_loop(name: str, noise: str, differs: bool) -> None:
    """The option changes decoding with uniform noise and not with absorbing noise."""
    process, canvas = make_process(noise, 8), make_canvas([12] * 8, prefix=2)
    runs = [
        decode(ROUTERS[name](sent_back_interpolates=on), process, Restless(process, 14), canvas, 8)[1]
        for on in (False, True)
    ]
    assert any((state.denoised & ~outcome.denoised).any() for state, outcome in runs[0]), "nothing is sent back"
    texts = [torch.stack([outcome.tokens for _, outcome in run]) for run in runs]
    assert (not torch.equal(*texts)) == differs


@pytest.mark.parametrize("noise", ["uniform", "mixture"])
def test_noise_that_stays_noise(noise: str) -> None:
    """A noisy token that stays noisy is drawn from ``q_noise(x_t)``, whatever the option for the sent back."""
    rows = 20_000
    expected = 0.5 * np.eye(VOCAB.size)[4] + 0.5 * NOISES[noise]().probs.numpy()
    for interpolates in (True, False):
        state = make_state(torch.full((rows, 1), 4), noise, generator=seeded(9))
        outcome = Scripted(NOISE, sent_back_interpolates=interpolates).step(state)
        assert p_value(outcome.tokens, expected) > 1e-3


# --- along a whole decoding ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_recursion(name: str, noise: str, temperature: float) -> None:
    """At every iteration ``b`` becomes where(b, v1, v2), and every token follows its action."""
    process = make_process(noise, 9)
    canvas = make_canvas([9, 4, 6, 1], prefix=2)
    denoise = Restless(process, 11)
    _, seen = decode(ROUTERS[name](), process, denoise, canvas, 6, temperature=temperature)
    before = torch.zeros_like(canvas.pinned)
    for state, outcome in seen:
        v1, v2 = outcome.action != NOISE, outcome.action == PROPOSE
        assert torch.equal(state.denoised, before)
        assert torch.equal(outcome.denoised, torch.where(state.denoised, v1, v2))
        assert torch.equal(outcome.tokens[outcome.action == KEEP], state.tokens[outcome.action == KEEP])
        assert torch.equal(outcome.tokens[v2], state.proposal[v2])
        assert torch.equal(outcome.stored[v2], state.scores[v2])
        assert torch.equal(outcome.stored[~v2], state.stored[~v2])
        made_noise = process.noise.probs[outcome.tokens[outcome.action == NOISE]]
        assert (made_noise > 0).all()
        assert not v2[state.denoised].any(), "a denoised token was replaced"
        before = outcome.denoised


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
@pytest.mark.parametrize("scale", [0.0, 5.0])
@pytest.mark.parametrize("name", TOP_K)
def test_number_denoised(name: str, noise: str, schedule: str, scale: float) -> None:
    """The schedule's count is met at every iteration and so never falls; cond may keep more, commit sends none back."""
    process = make_process(noise, 12)
    canvas = make_canvas([11, 7, 1], prefix=1)
    router = ROUTERS[name](gumbel_scale=scale)
    _, seen = decode(router, process, Restless(process, 12), canvas, 8, schedule=SCHEDULES[schedule])
    sent_back, lengths = 0, (~canvas.pinned).sum(1)
    for state, outcome in seen:
        count = SCHEDULES[schedule].denoised(state.iteration, 8, lengths)
        assert torch.equal(state.count, count)
        after = outcome.denoised.sum(1)
        assert (after >= count).all() if name == "cond" else torch.equal(after, count)
        assert name == "cond" or (after >= state.denoised.sum(1)).all()
        back = state.denoised & ~outcome.denoised
        sent_back += int(back.sum())
        if name == "commit":
            assert torch.equal(outcome.tokens[state.denoised], state.tokens[state.denoised])
    assert (sent_back == 0) == (name == "commit")


def test_routers_differ() -> None:
    """On one restless denoiser every two routers decode something else."""
    process = make_process("absorbing", 10)
    denoise, canvas = Restless(process, 14), make_canvas([12] * 16, prefix=2)
    texts = {name: decode(router(), process, denoise, canvas, 10)[0].tokens for name, router in ROUTERS.items()}
    for first, second in combinations(texts, 2):
        assert not torch.equal(texts[first], texts[second]), (first, second)


def test_routers_agree_in_one_iteration() -> None:
    """With a single iteration nothing is routed: all take the first proposal everywhere."""
    process = make_process("absorbing", 10)
    denoise, canvas = Restless(process, 14), make_canvas([12] * 16, prefix=2)
    texts = [decode(router(), process, denoise, canvas, 1)[0].tokens.tolist() for router in ROUTERS.values()]
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("name", ROUTERS)
def test_network_is_asked_only_where_needed(name: str) -> None:
    """Routers that do not look at fresh scores of denoised tokens do not have them computed."""
    process = make_process("absorbing", 6)
    _, seen = decode(ROUTERS[name](), process, Restless(process, 8), make_canvas([8, 5]), 6)
    for state, _ in seen:
        if name in ("uncond", "cond"):
            assert torch.equal(state.active, state.free)
        elif name.startswith("dndm"):  # see test_transition_times.py
            assert not (state.active & ~state.free).any()
        else:
            assert torch.equal(state.active, state.noisy)
        assert len(state.logits) == int(state.active.sum())


# --- custom routers --------------------------------------------------------------------------------------------------


class LeastEntropy(Router):
    """As commit, but ranked by the entropy of the whole distribution (Dream)."""

    def route(self, state: State) -> Tensor:
        confidence = torch.full(state.tokens.shape, -INF, dtype=torch.float64)
        confidence[state.active] = -entropy(state.logits)
        missing = (state.count - state.denoised.sum(1)).clamp(min=0)
        chosen = top_k(confidence, missing, state.noisy)
        return actions(state, v1=torch.ones_like(chosen), v2=chosen)


def test_entropy_router_looks_at_the_whole_distribution() -> None:
    """The likelier proposal is not the one of lower entropy: the two routers choose differently."""
    probs = torch.tensor(
        [
            [1e-9, 1e-9, 0.55, 0.15, 0.15, 0.15],  # the best proposal, but spread otherwise
            [1e-9, 1e-9, 0.51, 0.49, 1e-9, 1e-9],  # two ids only
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
    decoded, seen = decode(Blocks(), process, Restless(process, 7), canvas, 12)
    assert [state.active[0].nonzero().flatten().tolist() for state, _ in seen] == [[0, 1], [2, 3], [4, 5], [6]]
    assert decoded.calls.tolist() == [4, 2, 0]
    assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()


def test_arguments_of_a_custom_router_are_described() -> None:
    sampler = make_sampler(Blocks(size=3), 5)
    assert sampler.describe()["transition"] == {"class": "Blocks", "size": 3}


def test_memo_is_fresh_for_every_run() -> None:
    """What a router keeps does not leak from one decoding into the next, nor into the sampler."""

    class Counting(Ancestral):
        def route(self, state: State) -> Tensor:
            state.memo["count"] = state.memo.get("count", 0) + 1
            assert state.memo["count"] == state.iteration
            return super().route(state)

    process, router = make_process("uniform", 5), Counting()
    for _ in range(2):
        _, seen = decode(router, process, Restless(process, 3), make_canvas([3]), 5)
        assert len(seen) == 5
