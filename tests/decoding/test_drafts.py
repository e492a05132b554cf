"""Drafts: beam search with several tokens per call, whose scores are corrected in the next one."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from rdm.decoding.denoising_beam import DenoisingBeam
from rdm.decoding.drafts import Drafts
from rdm.decoding.routing import Commit
from rdm.decoding.sampler import Canvas, Decoded
from rdm.decoding.schedule import Linear
from rdm.decoding.scores import LeftToRight
from rdm.decoding.transition import Transition
from rdm.errors import UserError
from tests.decoding.helpers import MASK, PAD, VOCAB, decode, make_canvas, make_process, make_sampler
from tests.decoding.test_jacobi import CausalDenoiser

IDS = range(2, VOCAB.size)
PROCESS = make_process("absorbing", 12)


def beam(
    denoise: CausalDenoiser, lengths: list[int], width: int, steps: int, transition: Transition | None = None
) -> Decoded:
    canvas = make_canvas([length for length in lengths for _ in range(width)])
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=width)
    options: dict[str, Any] = {
        "samples": width,
        "length_candidates": 1,
        "search": DenoisingBeam() if width > 1 else None,
    }
    return decode(transition or Drafts(), PROCESS, denoise, canvas, steps, schedule=Linear(), **options)[0]


def exact(denoise: CausalDenoiser, text: tuple[int, ...]) -> float:
    """``log p(text)``, one token after the other."""
    return sum(denoise.log_prob(text, place, seen=place) for place in range(len(text)))


def texts_of(tokens: Tensor, length: int) -> list[tuple[int, ...]]:
    return [tuple(row) for row in tokens[:, :length].tolist()]


@pytest.mark.parametrize("seed", range(3))
def test_with_enough_calls_it_is_an_exhaustive_beam(seed: int) -> None:
    denoise = CausalDenoiser(seed, sharpness=1.0)
    texts = sorted(product(IDS, repeat=3), key=lambda text: -exact(denoise, text))
    decoded = beam(denoise, [3], len(texts), steps=12)
    assert texts_of(decoded.tokens, 3) == texts
    torch.testing.assert_close(decoded.scores, torch.tensor([exact(denoise, text) / 3 for text in texts]))
    assert decoded.calls.tolist() == [3] * len(texts)


def test_scores_are_corrected_in_the_next_call() -> None:
    """Two calls for four tokens: that of the second is exact, that of the last is not."""
    denoise = CausalDenoiser(5, sharpness=1.0)
    decoded = beam(denoise, [4], 30, steps=2)
    texts = texts_of(decoded.tokens, 4)
    assert len(set(texts)) == 30
    for text, score in zip(texts, decoded.scores.tolist(), strict=True):
        assert score == pytest.approx((exact(denoise, text[:3]) + denoise.log_prob(text, 3, seen=2)) / 4, abs=1e-5)


def test_corrected_scores_find_better_texts() -> None:
    """Than a beam that keeps the scores of the first prediction, on average over networks."""
    gains = []
    for seed in range(12):
        denoise, found = CausalDenoiser(seed, sharpness=1.5), []
        for transition in (Drafts(), Commit(score=LeftToRight())):
            decoded = beam(denoise, [9], 6, steps=5, transition=transition)
            found.append(exact(denoise, texts_of(decoded.tokens, 9)[0]))
        gains.append(found[0] - found[1])
    assert sum(gains) / len(gains) > 0.5


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_rows_do_not_mix(steps: int) -> None:
    denoise, lengths = CausalDenoiser(7), [7, 2, 4]
    decoded = beam(denoise, lengths, 4, steps)
    assert not (decoded.tokens == MASK).any()
    assert (decoded.calls <= steps).all()
    for number, length in enumerate(lengths):
        rows = slice(4 * number, 4 * number + 4)
        alone = beam(denoise, [length], 4, steps)
        assert torch.equal(decoded.tokens[rows, :length], alone.tokens)
        assert (decoded.tokens[rows, length:] == PAD).all()
        torch.testing.assert_close(decoded.scores[rows], alone.scores)


def test_without_a_beam_proposals_stay() -> None:
    """One token per call is greedy decoding."""
    denoise = CausalDenoiser(2)
    decoded = beam(denoise, [6], 1, steps=6)
    text, score = denoise.greedy(6)
    assert decoded.tokens[0].tolist() == text
    assert decoded.scores.item() == pytest.approx(score, abs=1e-5)


def test_blocks_are_refused() -> None:
    sampler = make_sampler(Drafts(), 4, samples=4, length_candidates=2, search=DenoisingBeam(), block=2)
    with pytest.raises(UserError, match=r"rdm_beam, or draft_beam without decoding\.block"):
        sampler.check(PROCESS)
