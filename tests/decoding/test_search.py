"""Resampling of candidates by a reward, and guidance."""

import pytest
import torch
from torch import Tensor

from rdm.decoding.candidates import BestScore, CandidateSet, Selection
from rdm.decoding.guidance import Guided
from rdm.decoding.sampler import Canvas
from rdm.decoding.search import Particles
from rdm.errors import UserError
from tests.decoding.helpers import (
    ALL_ROUTERS,
    ROUTERS,
    ContextDenoiser,
    decode,
    make_canvas,
    make_process,
    make_sampler,
    seeded,
)


class CountOf(Selection):
    """A reward: how often an id occurs."""

    def __init__(self, token: int) -> None:
        self.token = token

    def scores(self, candidates: CandidateSet) -> Tensor:
        return ((candidates.tokens == self.token) & candidates.text).sum(2).double()


def candidate_set(rewards: list[list[float]]) -> CandidateSet:
    scores = torch.tensor(rewards)
    ids = torch.zeros(*scores.shape, 2, dtype=torch.long)
    return CandidateSet(ids[:, 0], ids, ids == 0, scores)


def test_weights_of_the_parents() -> None:
    """Parents follow softmax(scale * gain) within the candidates of a source with the same free positions."""
    rewards, before = [[0.1, 0.2, 0.3, 0.9]], torch.tensor([0.0, 0.1, 0.0, 0.0])
    free = torch.tensor([[True, True]] * 3 + [[True, False]])
    search, generator = Particles(scale=5.0, reward=BestScore()), seeded()
    draws = torch.stack([search.parents(candidate_set(rewards), free, before, generator)[0] for _ in range(2000)])
    expected = (5.0 * torch.tensor([0.1, 0.1, 0.3])).softmax(0)
    for row in range(3):
        share = torch.bincount(draws[:, row], minlength=4)[:3] / 2000
        assert share.tolist() == pytest.approx(expected.tolist(), abs=0.03)
    assert (draws[:, 3] == 3).all(), "the only candidate of its length"


def test_parents_stay_within_the_source() -> None:
    search = Particles(scale=100.0, reward=BestScore())
    free = torch.ones(4, 2, dtype=torch.bool)
    parents, rewards = search.parents(candidate_set([[0.0, 1.0], [3.0, 2.0]]), free, torch.zeros(4), seeded())
    assert parents.tolist() == [1, 1, 2, 2]
    assert rewards.tolist() == [0.0, 1.0, 3.0, 2.0]


def test_impossible_rewards_keep_the_rows() -> None:
    """All rewards of a group are -inf: nothing is resampled, and nothing is NaN."""
    search, free = Particles(reward=BestScore()), torch.ones(2, 2, dtype=torch.bool)
    impossible = float("-inf")
    parents, _ = search.parents(candidate_set([[impossible, impossible]]), free, torch.zeros(2), seeded())
    assert parents.tolist() == [0, 1]


@pytest.mark.parametrize("name", ROUTERS)
def test_resampling_raises_the_reward(name: str) -> None:
    """More of the rewarded id than without search, with every router; lengths are not mixed."""
    process, canvas = make_process("absorbing", 8), make_canvas([8, 8, 5, 5] * 40)
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=8)
    means = []
    for search in (None, Particles(every=1, scale=3.0, reward=CountOf(4))):
        decoded, seen = decode(
            ROUTERS[name](),
            process,
            ContextDenoiser(process, 9, sharpness=0.3),
            canvas,
            6,
            temperature=1.0,
            search=search,
            samples=8,
        )
        assert torch.equal(decoded.tokens[canvas.pinned], canvas.tokens[canvas.pinned])
        assert torch.equal(seen.seen[-1][1].denoised, ~canvas.pinned)
        means.append(float((decoded.tokens == 4).double().sum(1).mean()))
    assert means[1] > means[0] + 0.3


def test_search_and_blocks() -> None:
    """The memo of every block is rearranged with the rows."""
    process, canvas = make_process("absorbing", 6), make_canvas([6] * 8)
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=4)
    for name in ("dndm", "klass", "editing", "mask_predict_entropy"):
        router, search = ALL_ROUTERS[name](), Particles(every=1, reward=CountOf(4))
        denoise = ContextDenoiser(process, 6)
        _, seen = decode(router, process, denoise, canvas, 4, temperature=1.0, search=search, samples=4, block=3)
        assert seen.seen[-1][1].denoised.all()


def test_reward_of_the_selection() -> None:
    """Without a reward of its own, a search uses the selection of the decoding."""
    process, canvas = make_process("absorbing", 6), make_canvas([6] * 8)
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=4)
    runs = [
        decode(
            ROUTERS["uncond"](),
            process,
            ContextDenoiser(process, 6),
            canvas,
            6,
            temperature=1.0,
            samples=4,
            selection=CountOf(4),
            search=Particles(reward=reward),
        )[0].tokens.tolist()
        for reward in (None, CountOf(4), CountOf(5))
    ]
    assert runs[0] == runs[1] != runs[2]


def test_search_needs_candidates() -> None:
    with pytest.raises(UserError, match=r"decoding\.search resamples candidates: set decoding\.samples above 1"):
        make_sampler(ROUTERS["uncond"](), 4, length_candidates=1, search=Particles())


def test_guided_distribution() -> None:
    """``p(x_0 | source)^scale p(x_0)^(1 - scale)``, normalised; scale 1 is exactly the conditional one."""
    conditional, unconditional = torch.randn(2, 5, 7, generator=seeded())
    for scale in (0.0, 0.5, 1.0, 2.5):
        logits = Guided(lambda *_: conditional, lambda *_: unconditional, scale)(*[torch.zeros(1)] * 3)
        p, q = conditional.double().softmax(-1), unconditional.double().softmax(-1)
        expected = p**scale * q ** (1 - scale)
        torch.testing.assert_close(logits.double().softmax(-1), expected / expected.sum(-1, keepdim=True))
        assert (scale == 1) == torch.equal(logits, conditional)


def test_guided_calls_count_twice() -> None:
    process, canvas = make_process("absorbing", 6), make_canvas([6, 3])
    sampler = make_sampler(ROUTERS["uncond"](), 4, guidance=2.0)
    denoise, other = ContextDenoiser(process, 6), ContextDenoiser(process, 6, seed=1)
    decoded = sampler.run(process, denoise, canvas, seeded(), unconditional=other)
    assert decoded.calls.tolist() == [8, 8]
    assert len(denoise.steps) == len(other.steps) == 4
