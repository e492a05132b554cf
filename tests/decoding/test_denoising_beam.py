"""Beam search in denoising, against exhaustive search and a plain beam search."""

from itertools import product

import pytest
import torch
from torch import Tensor

from rdm.decoding.denoising_beam import DenoisingBeam
from rdm.decoding.routing import Commit
from rdm.decoding.sampler import Canvas
from rdm.decoding.scores import LeftToRight
from rdm.errors import UserError
from tests.decoding.helpers import (
    MASK,
    PAD,
    ROUTERS,
    VOCAB,
    ContextDenoiser,
    decode,
    make_canvas,
    make_process,
    make_sampler,
)

IDS = range(2, VOCAB.size)
LENGTH = 4


def beam(
    denoise: ContextDenoiser, lengths: list[int], width: int, steps: int, **options: object
) -> tuple[Tensor, Tensor]:
    """Decode ``width`` hypotheses of each of ``lengths``, from left to right; return tokens and scores."""
    canvas = make_canvas([length for length in lengths for _ in range(width)])
    canvas = Canvas(canvas.tokens, canvas.pinned, candidates=width)
    process = make_process("absorbing", max(steps, LENGTH))
    search = {"samples": width, "length_candidates": 1, "search": DenoisingBeam()}
    router = Commit(score=LeftToRight())
    decoded, _ = decode(router, process, denoise, canvas, steps, **search, **options)
    return decoded.tokens, decoded.scores


class Steady(ContextDenoiser):
    """Logits do not depend on the step, so that a text has one probability."""

    def __call__(self, tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        return super().__call__(tokens, torch.ones_like(t), positions)


def steady(seed: int = 0, sharpness: float = 0.7) -> Steady:
    return Steady(make_process("absorbing", LENGTH), LENGTH, seed, sharpness)


def next_log_probs(denoise: Steady, prefix: tuple[int, ...], length: int) -> Tensor:
    """Return ``log p(x_i | prefix)`` for all ids."""
    row = [*prefix, *[MASK] * (length - len(prefix)), *[PAD] * (LENGTH - length)]
    place = torch.zeros(1, LENGTH, dtype=torch.bool)
    place[0, len(prefix)] = True
    return denoise(torch.tensor([row]), torch.ones(1, dtype=torch.long), place)[0].log_softmax(-1)


def log_prob(denoise: Steady, text: tuple[int, ...]) -> float:
    return sum(float(next_log_probs(denoise, text[:i], len(text))[text[i]]) for i in range(len(text)))


@pytest.mark.parametrize("seed", range(3))
def test_wide_beam_is_exhaustive(seed: int) -> None:
    """With as many hypotheses as texts, all texts are found, the most probable first."""
    denoise, length = steady(seed), 3
    texts = sorted(product(IDS, repeat=length), key=lambda text: -log_prob(denoise, text))
    tokens, scores = beam(denoise, [length], len(texts), steps=length)
    assert [tuple(row) for row in tokens[:, :length].tolist()] == texts
    expected = torch.tensor([log_prob(denoise, text) / length for text in texts])
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("width", [2, 3, 5])
def test_is_beam_search(width: int, seed: int) -> None:
    """One token per iteration: the hypotheses of a beam search that is written down plainly; rows do not mix."""
    denoise, lengths = steady(seed), [4, 2, 3]
    tokens, scores = beam(denoise, lengths, width, steps=LENGTH)
    for number, length in enumerate(lengths):
        hypotheses = {(): 0.0}
        for _ in range(length):
            longer = {
                (*prefix, word): total + float(next_log_probs(denoise, prefix, length)[word])
                for prefix, total in hypotheses.items()
                for word in IDS
            }
            hypotheses = dict(sorted(longer.items(), key=lambda item: -item[1])[:width])
        rows = slice(number * width, (number + 1) * width)
        assert [tuple(row) for row in tokens[rows, :length].tolist()] == list(hypotheses)
        torch.testing.assert_close(scores[rows], torch.tensor(list(hypotheses.values())) / length)


def test_several_tokens_at_once() -> None:
    """All tokens in one iteration are independent: the best texts are the most probable ones."""
    denoise = steady(1)
    places = torch.ones(1, LENGTH, dtype=torch.bool)
    log_probs = denoise(torch.full((1, LENGTH), MASK), torch.ones(1, dtype=torch.long), places).log_softmax(-1)
    texts = list(product(IDS, repeat=LENGTH))
    totals = torch.tensor([float(log_probs[range(LENGTH), list(text)].sum()) for text in texts])
    tokens, scores = beam(denoise, [LENGTH], 40, steps=1)
    best = totals.topk(40)
    assert [tuple(row) for row in tokens.tolist()] == [texts[index] for index in best.indices]
    torch.testing.assert_close(scores, best.values / LENGTH)


def test_two_tokens_per_iteration() -> None:
    """Scores are the log-probabilities with which the tokens were predicted, also of replaced ones."""
    denoise = steady(2)
    tokens, scores = beam(denoise, [4], 4, steps=2)
    assert len({tuple(row) for row in tokens.tolist()}) == 4, "no text twice"
    for row, score in zip(tokens.tolist(), scores.tolist(), strict=True):
        total = 0.0
        for start in (0, 2):
            seen = torch.tensor([[*row[:start], *[MASK] * (4 - start)]])
            logits = denoise(seen, torch.ones(1, dtype=torch.long), seen == MASK).log_softmax(-1)
            total += float(logits[0, row[start]] + logits[1, row[start + 1]])
        assert score == pytest.approx(total / 4, abs=1e-5)


@pytest.mark.parametrize("wrapper", [{"block": 2}, {"stop_on_convergence": 1}])
def test_wrapped_beams_are_accepted(wrapper: dict[str, int]) -> None:
    sampler = make_sampler(Commit(), 4, samples=4, length_candidates=2, search=DenoisingBeam(), **wrapper)
    sampler.check(make_process("absorbing"))


def test_beam_and_blocks() -> None:
    tokens, _ = beam(steady(), [4, 3], 3, steps=2, block=2)
    assert not (tokens == MASK).any()
    assert len({tuple(row) for row in tokens[:3].tolist()}) == 3


def test_beam_needs_decodings_that_keep_tokens() -> None:
    sampler = make_sampler(ROUTERS["uncond"](), 4, samples=4, length_candidates=2, search=DenoisingBeam())
    with pytest.raises(UserError, match=r"a beam needs a decoding that keeps denoised tokens; try decoding=rdm_beam"):
        sampler.check(make_process("absorbing"))


def test_beams_have_one_width() -> None:
    sampler = make_sampler(Commit(), 4, samples=5, length_candidates=2, search=DenoisingBeam())
    with pytest.raises(UserError, match=r"decoding\.samples=5 must be a multiple of decoding\.length_candidates=2"):
        sampler.check(make_process("absorbing"))
