"""Ranking scores: values by hand, the memory of denoised tokens, effect on ranking routers."""

import math

import pytest
import torch

from rdm.decoding.routing import Commit, Conditional, MaskPredict, Unconditional
from rdm.decoding.scores import Confidence, LeftToRight, Margin, NegativeEntropy, Score
from rdm.decoding.transition import Action, top_k
from rdm.decoding.transition_times import DNDMTopK
from tests.decoding.helpers import (
    BARRED,
    MASK,
    VOCAB,
    ContextDenoiser,
    decode,
    make_canvas,
    make_process,
    make_state,
    p_value,
)

PROBS = torch.tensor([[0.5, 0.4, 0.1], [0.45, 0.3, 0.25], [0.6, 0.2, 0.2], [0.5, 0.25, 0.25]])


def test_values_by_hand() -> None:
    """On these distributions confidence, margin and entropy rank differently."""
    margins = [0.1, 0.15, 0.4, 0.25]
    entropies = [-sum(p * math.log(p) for p in row) for row in PROBS.tolist()]
    assert Margin().values(PROBS.log()).exp().tolist() == pytest.approx(margins, rel=1e-5)
    assert NegativeEntropy().values(PROBS.log()).tolist() == pytest.approx([-h for h in entropies], rel=1e-5)


@pytest.mark.parametrize(
    ("score", "expected"),
    [(Confidence(), [0, 2]), (Margin(), [2, 3]), (NegativeEntropy(), [0, 2]), (LeftToRight(), [0, 1])],
    ids=["confidence", "margin", "entropy", "left_to_right"],
)
def test_chosen_tokens(score: Score, expected: list[int]) -> None:
    """The two best of four noisy tokens."""
    logits = torch.full((4, 6), -1e4)
    logits[:, 2:5] = PROBS.log()
    confidence = PROBS.max(1).values.log() + torch.tensor([0.01, 0.0, 0.0, 0.0])  # no tie
    state = make_state([[MASK] * 4], logits=logits, scores=confidence[None], count=[2])
    outcome = Unconditional(score=score).step(state)
    assert outcome.denoised.nonzero()[:, 1].tolist() == expected
    assert torch.equal(outcome.stored[outcome.denoised], state.scores[outcome.denoised]), "log-probabilities are stored"


def test_left_to_right_leaves_no_gap() -> None:
    """After every iteration the denoised tokens are a prefix."""
    process, canvas = make_process("absorbing", 8), make_canvas([9, 5], prefix=1)
    _, seen = decode(Commit(score=LeftToRight()), process, ContextDenoiser(process, 10), canvas, 4)
    for _, outcome in seen:
        denoised = outcome.denoised & ~canvas.pinned
        count = denoised.sum(1)
        first = (~canvas.pinned).int().argmax(1)
        for row in range(len(count)):
            assert denoised[row, first[row] : first[row] + count[row]].all()


@pytest.mark.parametrize("router", [MaskPredict, Conditional, DNDMTopK])
@pytest.mark.parametrize("score", [Margin(), NegativeEntropy()], ids=["margin", "entropy"])
def test_stored_score_is_that_of_the_iteration_in_which_a_token_was_denoised(router: type, score: Score) -> None:
    process, canvas = make_process("absorbing", 8), make_canvas([9, 5], prefix=1)
    _, seen = decode(router(score=score), process, ContextDenoiser(process, 10), canvas, 8)
    expected = torch.zeros(canvas.tokens.shape)
    for index, (state, outcome) in enumerate(seen):
        now = torch.zeros(canvas.tokens.shape)
        now[state.active] = score.values(state.logits)  # type: ignore[attr-defined]
        taken = outcome.action == Action.PROPOSE
        expected = torch.where(taken, now, expected)
        if index == len(seen) - 1:
            torch.testing.assert_close(state.memo["ranking scores"], expected)


@pytest.mark.parametrize("router", [Unconditional, Commit], ids=["uncond", "commit"])
@pytest.mark.parametrize(("score", "unbiased"), [(NegativeEntropy(), True), (Margin(), True), (Confidence(), False)])
def test_sampled_tokens_keep_their_distribution_unless_ranked_by_their_own_probability(
    router: type, score: Score, unbiased: bool
) -> None:
    """Every position has the same distribution, whatever the context. Entropy and margin do not depend on the draw; the
    confidence does, so that likely tokens are kept and others drawn again or later."""
    probs = torch.tensor([0.4, 0.3, 0.2, 0.1])
    logits = torch.full((VOCAB.size,), BARRED).index_copy(0, torch.arange(2, 6), probs.log())
    process, canvas = make_process("absorbing", 8), make_canvas([16] * 500)
    decoded, _ = decode(
        router(score=score),
        process,
        lambda tokens, t, active: logits.expand(int(active.sum()), -1),
        canvas,
        8,
        temperature=1.0,
    )
    p = p_value(decoded.tokens - 2, probs.numpy().astype(float))
    assert p > 1e-3 if unbiased else p < 1e-9


def test_confidence_is_the_default() -> None:
    process, canvas = make_process("absorbing", 8), make_canvas([9] * 30, prefix=2)
    runs = [
        decode(Unconditional(score=score), process, ContextDenoiser(process, 11), canvas, 8)[0].tokens
        for score in (None, Confidence(), Margin())
    ]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_equal_probabilities_are_the_worst_margin() -> None:
    """A margin of 0 is ranked last and does not become NaN."""
    value = Margin().values(torch.zeros(1, 4))
    assert value.tolist() == [-math.inf]
    ranked = top_k(torch.tensor([[-math.inf, -9.0]]), torch.tensor([1]), torch.ones(1, 2, dtype=torch.bool))
    assert ranked.tolist() == [[False, True]]
