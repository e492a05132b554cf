"""The routers of the paper: their rules, randomness, and properties of complete decodings."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch

from rdm.decoding.routing import P2, Commit, Conditional, MaskPredict, Unconditional
from rdm.decoding.transition import Action, Outcome, Router
from rdm.errors import UserError
from tests.decoding.helpers import (
    ALL_ROUTERS,
    CASES,
    MASK,
    NOISES,
    REPLACE,
    ROUTERS,
    SCHEDULES,
    TOP_K,
    VOCAB,
    ContextDenoiser,
    FixedActions,
    decode,
    make_canvas,
    make_process,
    make_state,
    p_value,
    seeded,
)

KEEP, NOISE, PROPOSE, REDRAW = Action
INF, NAN = math.inf, math.nan


# --- the rule of each router on small states -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("router", "expected"),
    [
        (Unconditional(), [KEEP, NOISE, PROPOSE, NOISE]),  # the best fresh scores: positions 0 and 2
        (MaskPredict(), [NOISE, KEEP, PROPOSE, NOISE]),  # denoised tokens by stored score: 1 and 2
        (Conditional(), [KEEP, KEEP, PROPOSE, NOISE]),  # the score at 1 is lower, but the proposal differs
        (Commit(), [KEEP, KEEP, NOISE, NOISE]),  # two are already denoised
    ],
    ids=["uncond", "mask_predict", "cond", "commit"],
)
def test_top_k_routers_on_one_state(router: Router, expected: list[Action]) -> None:
    """A state on which all four top-k routers decide differently."""
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
    # Only tokens denoised in this step have a new stored score.
    taken = torch.tensor([expected]) == PROPOSE
    assert torch.equal(outcome.stored, torch.where(taken, state.scores, state.stored))


@pytest.mark.parametrize(("outside", "fell", "same"), list(product([True, False], repeat=3)))
def test_cond_sends_back_only_under_three_conditions(outside: bool, fell: bool, same: bool) -> None:
    """Outside the top-k, lower score than stored, same proposal."""
    score = -1.0
    state = make_state(
        [[3, MASK, MASK]],
        denoised=[[True, False, False]],
        scores=[[score, -0.5 if outside else -2.0, -3.0]],
        stored=[[-0.9 if fell else score, 0.0, 0.0]],  # an equal score is not lower
        proposal=[[3 if same else 4, 5, 5]],
        count=[1],
    )
    outcome = Conditional().step(state)
    back = outside and fell and same
    assert outcome.action[0, 0] == (NOISE if back else KEEP)
    assert outcome.tokens[0, 0] == (MASK if back else 3)
    assert outcome.denoised[0, 0] == (not back)


def test_commit_fills_up_to_the_count() -> None:
    """Denoised tokens count towards k; only noisy ones are added, in order of their scores."""
    state = make_state(
        [[2, MASK, MASK, MASK, MASK]],
        denoised=[[True, False, False, False, False]],
        free=[[True, True, True, True, False]],
        scores=[[-9.0, -3.0, -1.0, -2.0, 0.0]],
        count=[3],
    )
    assert Commit().step(state).action.tolist() == [[KEEP, NOISE, PROPOSE, PROPOSE, KEEP]]


# --- randomness: Gumbel noise in the ranking, noise of tokens sent back ----------------------------------------------


@pytest.mark.parametrize(("scale", "rate"), [(1.0, 0.5), (5.0, 0.5), (2.0, 1.0)])
@pytest.mark.parametrize("router", [Unconditional, Conditional, Commit, MaskPredict])
def test_gumbel_ranking(router: type[Router], scale: float, rate: float) -> None:
    """With k = 1 the chosen position follows softmax(score / (scale * noise rate))."""
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
    """At noise rate 0 (the last iteration) the ranking depends on the scores only."""
    state = make_state([[MASK] * 4] * 50, scores=[[-0.3, -0.1, -0.2, -0.4]] * 50, count=[2] * 50, noise_rate=0.0)
    assert ROUTERS[name](gumbel_scale=1e6).step(state).denoised.tolist() == [[False, True, True, False]] * 50


def test_mask_predict_adds_no_noise_to_stored_scores() -> None:
    """Gumbel noise is added to the scores of noisy tokens only."""
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
def test_gumbel_noise_depends_on_the_seed(name: str) -> None:
    """Equal seeds give equal texts, different seeds different ones; without Gumbel noise the seed has no effect."""
    process = make_process("absorbing", 8)
    denoise, canvas = ContextDenoiser(process, 12), make_canvas([10] * 8, prefix=2)

    def run(scale: float, seed: int) -> list[list[int]]:
        return decode(ROUTERS[name](gumbel_scale=scale), process, denoise, canvas, 8, seed)[0].tokens.tolist()

    assert run(0.0, 1) == run(0.0, 2)
    assert run(5.0, 1) == run(5.0, 1)
    assert run(5.0, 1) != run(5.0, 2)
    assert run(5.0, 1) != run(0.0, 1)


@pytest.mark.parametrize("name", TOP_K)
def test_negative_gumbel_scale(name: str) -> None:
    with pytest.raises(UserError):
        ROUTERS[name](gumbel_scale=-1.0)


def send_back(noise: str, interpolates: bool, rows: int = 20_000) -> Outcome:
    """Send many denoised tokens of id 3 back to noise, from t = 3 (alpha 1/4) to s = 2 (alpha 1/2)."""
    state = make_state(
        torch.full((rows, 1), 3), noise, denoised=torch.ones(rows, 1, dtype=torch.bool), generator=seeded(8)
    )
    return FixedActions(NOISE, sent_back_interpolates=interpolates).step(state)


@pytest.mark.parametrize("noise", ["uniform", "mixture", "unigram"])
@pytest.mark.parametrize("interpolates", [True, False])
def test_noise_of_tokens_sent_back(noise: str, interpolates: bool) -> None:
    """A sample of ``q_noise``, or of ``q_noise(x_t)``, which keeps the token with alpha_t / alpha_s = 1/2."""
    outcome = send_back(noise, interpolates)
    fresh = NOISES[noise]().probs.numpy()
    kept = 0.5 * np.eye(VOCAB.size)[3] + 0.5 * fresh
    assert p_value(outcome.tokens, kept if interpolates else fresh) > 1e-3
    assert p_value(outcome.tokens, fresh if interpolates else kept) < 1e-6
    assert not outcome.denoised.any()


@pytest.mark.parametrize("interpolates", [True, False])
def test_tokens_sent_back_under_mask_noise(interpolates: bool) -> None:
    """Tokens become masks; ``sent_back_interpolates`` has no effect."""
    assert (send_back("absorbing", interpolates, rows=200).tokens == MASK).all()


@pytest.mark.parametrize(("noise", "differs"), [("uniform", True), ("absorbing", False)])
@pytest.mark.parametrize("name", ["uncond", "cond", "mask_predict"])
def test_sent_back_interpolates_in_a_decoding(name: str, noise: str, differs: bool) -> None:
    """The option has an effect under uniform noise and none under absorbing noise."""
    process, canvas = make_process(noise, 8), make_canvas([12] * 8, prefix=2)
    runs = [
        decode(ROUTERS[name](sent_back_interpolates=on), process, ContextDenoiser(process, 14), canvas, 8)[1]
        for on in (False, True)
    ]
    assert any((state.denoised & ~outcome.denoised).any() for state, outcome in runs[0]), "nothing is sent back"
    texts = [torch.stack([outcome.tokens for _, outcome in run]) for run in runs]
    assert (not torch.equal(*texts)) == differs


@pytest.mark.parametrize("noise", ["uniform", "mixture"])
def test_noise_of_tokens_that_stay_noisy(noise: str) -> None:
    """A sample of ``q_noise(x_t)``, for both values of ``sent_back_interpolates``."""
    rows = 20_000
    expected = 0.5 * np.eye(VOCAB.size)[4] + 0.5 * NOISES[noise]().probs.numpy()
    for interpolates in (True, False):
        state = make_state(torch.full((rows, 1), 4), noise, generator=seeded(9))
        outcome = FixedActions(NOISE, sent_back_interpolates=interpolates).step(state)
        assert p_value(outcome.tokens, expected) > 1e-3


# --- complete decodings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "noise"), CASES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_recursion_of_b(name: str, noise: str, temperature: float) -> None:
    """In every iteration ``b`` becomes where(b, v1, v2), and tokens and stored scores follow the actions."""
    process = make_process(noise, 9)
    canvas = make_canvas([9, 4, 6, 1], prefix=2)
    denoise = ContextDenoiser(process, 11)
    _, seen = decode(ALL_ROUTERS[name](), process, denoise, canvas, 6, temperature=temperature)
    before = torch.zeros_like(canvas.pinned)
    corrects = name == "leave_one_out"  # its proposals are not those of the state
    for state, outcome in seen:
        noised, v2 = (outcome.action == NOISE) | (outcome.action == REDRAW), outcome.action == PROPOSE
        v1 = ~noised
        assert torch.equal(state.denoised, before)
        assert torch.equal(outcome.denoised, torch.where(state.denoised, v1, v2))
        assert torch.equal(outcome.tokens[outcome.action == KEEP], state.tokens[outcome.action == KEEP])
        assert torch.equal(outcome.tokens[v2], state.proposal[v2]) or corrects
        assert torch.equal(outcome.stored[v2], state.scores[v2]) or corrects
        assert torch.equal(outcome.stored[~v2], state.stored[~v2])
        assert (process.noise.probs[outcome.tokens[noised]] > 0).all()
        assert name in REPLACE or not v2[state.denoised].any(), "a denoised token was replaced"
        before = outcome.denoised


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
@pytest.mark.parametrize("scale", [0.0, 5.0])
@pytest.mark.parametrize("name", TOP_K)
def test_number_of_denoised_tokens(name: str, noise: str, schedule: str, scale: float) -> None:
    """The count of the schedule in every iteration; cond may keep more, commit sends none back."""
    process = make_process(noise, 12)
    canvas = make_canvas([11, 7, 1], prefix=1)
    router = ROUTERS[name](gumbel_scale=scale)
    _, seen = decode(router, process, ContextDenoiser(process, 12), canvas, 8, schedule=SCHEDULES[schedule])
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
    """All pairs of routers give different texts."""
    process = make_process("absorbing", 10)
    denoise, canvas = ContextDenoiser(process, 14), make_canvas([12] * 16, prefix=2)
    texts = {name: decode(router(), process, denoise, canvas, 10)[0].tokens for name, router in ROUTERS.items()}
    for first, second in combinations(texts, 2):
        assert not torch.equal(texts[first], texts[second]), (first, second)


def test_routers_agree_in_one_iteration() -> None:
    """With a single iteration every router takes the first proposal everywhere."""
    process = make_process("absorbing", 10)
    denoise, canvas = ContextDenoiser(process, 14), make_canvas([12] * 16, prefix=2)
    texts = [decode(router(), process, denoise, canvas, 1)[0].tokens.tolist() for router in ROUTERS.values()]
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_p2_with_eta_one_is_uncond(noise: str) -> None:
    """To the bit, with sampled proposals; with another eta, denoised tokens are sent back more or less often."""
    process, canvas = make_process(noise, 8), make_canvas([10] * 20, prefix=1)
    denoise = ContextDenoiser(process, 11)
    ours, theirs = (
        decode(router, process, denoise, canvas, 8, temperature=1.0)[1] for router in (P2(eta=1.0), Unconditional())
    )
    for (state, outcome), (other, after) in zip(ours, theirs, strict=True):
        assert torch.equal(state.proposal, other.proposal)
        assert torch.equal(outcome.tokens, after.tokens)
    back = [
        sum(int((state.denoised & ~outcome.denoised).sum()) for state, outcome in seen)
        for seen in (decode(P2(eta=eta), process, denoise, canvas, 8, temperature=1.0)[1] for eta in (0.2, 1.0, 5.0))
    ]
    assert back[0] < back[1] < back[2]


@pytest.mark.parametrize("name", ROUTERS)
def test_active_positions(name: str) -> None:
    """Only routers that rank denoised tokens by fresh scores call the network there."""
    process = make_process("absorbing", 6)
    _, seen = decode(ROUTERS[name](), process, ContextDenoiser(process, 8), make_canvas([8, 5]), 6)
    for state, _ in seen:
        if name in ("uncond", "uncond_margin", "cond", "p2", "psi"):
            assert torch.equal(state.active, state.free)
        elif name.startswith("dndm") or name in ("editing", "jacobi"):  # see the files of their tests
            assert not (state.active & ~state.free).any()
        else:
            assert torch.equal(state.active, state.noisy)
        assert len(state.logits) == int(state.active.sum())
