"""Jacobi decoding, against greedy decoding from left to right."""

import pytest
import torch
from torch import Tensor

from rdm.decoding.denoising_beam import DenoisingBeam
from rdm.decoding.jacobi import Jacobi
from rdm.decoding.schedule import Cosine, DecodingSchedule, Linear
from rdm.errors import UserError
from tests.decoding.helpers import BARRED, MASK, PAD, VOCAB, decode, make_canvas, make_process, make_sampler, seeded

PROCESS = make_process("absorbing", 12)


class CausalDenoiser:
    """Each position is predicted from the visible tokens before it; further predictions are further off the mark."""

    def __init__(self, seed: int = 0, sharpness: float = 2.0) -> None:
        self.seed, self.sharpness, self.calls = seed, sharpness, 0

    def logits(self, before: tuple[int, ...], distance: int) -> Tensor:
        """Logits of the token ``distance`` positions after the tokens ``before``."""
        generator = seeded(hash((*before, distance, self.seed)) % 2**31)
        logits = self.sharpness * torch.randn(VOCAB.size, generator=generator)
        return logits.masked_fill(torch.arange(VOCAB.size) < 2, BARRED)

    def __call__(self, tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        self.calls += 1
        rows = []
        for row, place in positions.nonzero().tolist():
            before = tokens[row, :place].tolist()
            visible = tuple(token for token in before if token != MASK)
            rows.append(self.logits(visible, place - len(visible)))
        return torch.stack(rows) if rows else torch.zeros(0, VOCAB.size)

    def greedy(self, length: int) -> tuple[list[int], float]:
        """The text of greedy decoding, token by token, and its mean log-probability."""
        text: list[int] = []
        total = 0.0
        for _ in range(length):
            log_probs = self.logits(tuple(text), 0).log_softmax(-1)
            text.append(int(log_probs.argmax()))
            total += float(log_probs.max())
        return text, total / length

    def log_prob(self, text: tuple[int, ...], place: int, seen: int) -> float:
        """``log p(text[place] | text[:seen])``."""
        return float(self.logits(text[:seen], place - seen).log_softmax(-1)[text[place]])


@pytest.mark.parametrize("schedule", [Linear(), Cosine()])
@pytest.mark.parametrize("ahead", [0, 1, 3, 20])
@pytest.mark.parametrize("seed", range(3))
def test_with_enough_calls_it_is_greedy_decoding(seed: int, ahead: int, schedule: DecodingSchedule) -> None:
    """Texts and scores; rows end on their own, and none takes more calls than it has tokens."""
    denoise, lengths = CausalDenoiser(seed), [8, 3, 5, 1]
    decoded, seen = decode(Jacobi(ahead), PROCESS, denoise, make_canvas(lengths), steps=12, schedule=schedule)
    for row, length in enumerate(lengths):
        text, score = denoise.greedy(length)
        assert decoded.tokens[row, :length].tolist() == text
        assert decoded.scores[row].item() == pytest.approx(score, abs=1e-5)
        assert decoded.calls[row] <= length
    assert len(seen) == denoise.calls


def test_more_calls_than_the_process_has_steps() -> None:
    """The network does not read the step, so long texts can have as many calls as greedy decoding."""
    denoise = CausalDenoiser()
    decoded, _ = decode(Jacobi(ahead=1), PROCESS, denoise, make_canvas([20]), steps=2 * PROCESS.num_steps)
    assert decoded.tokens[0].tolist() == denoise.greedy(20)[0]


def test_fewer_calls_than_tokens() -> None:
    """Where tokens do not depend on each other, a call makes all that it predicts final."""

    class Independent(CausalDenoiser):
        def logits(self, before: tuple[int, ...], distance: int) -> Tensor:
            return super().logits((), len(before) + distance)

    denoise = Independent()
    decoded, _ = decode(Jacobi(ahead=2), PROCESS, denoise, make_canvas([9]), steps=12)
    assert decoded.calls.tolist() == [4]  # three tokens a call, and one call that changes nothing
    assert decoded.tokens[0].tolist() == denoise.greedy(9)[0]


@pytest.mark.parametrize("steps", range(1, 7))
def test_with_few_calls(steps: int) -> None:
    """The schedule is a lower bound of the denoised tokens, final tokens never change, and no noise is left."""
    lengths = torch.tensor([7, 4, 2])
    decoded, seen = decode(Jacobi(ahead=1), PROCESS, CausalDenoiser(4), make_canvas(lengths.tolist()), steps=steps)
    assert len(seen) <= steps
    final = torch.zeros_like(decoded.tokens, dtype=torch.bool)
    for state, outcome in seen:
        assert not (state.active & final).any()
        assert (outcome.denoised.sum(1) >= Linear().denoised(state.iteration, steps, lengths)).all()
        before, changed = state.tokens, outcome.tokens != state.tokens
        assert not (changed & final).any()
        first = changed & (changed.cumsum(1) == 1)
        final = state.free & ((changed.cumsum(1) == 0) | first) & outcome.denoised
        assert (before == decoded.tokens)[final & ~first].all()
    assert not (decoded.tokens == MASK).any()
    assert (decoded.tokens[1, 4:] == PAD).all()


def test_refused() -> None:
    with pytest.raises(UserError, match=r"decoding\.transition\.ahead must be 0 or greater, got -1"):
        Jacobi(ahead=-1)
    plain_beam = make_sampler(Jacobi(), 4, samples=4, length_candidates=2, search=DenoisingBeam())
    with pytest.raises(UserError, match="a beam needs a decoding that keeps denoised tokens"):
        plain_beam.check(PROCESS)
    with pytest.raises(UserError, match=r"decoding\.stop_on_convergence: decoding=test ends by itself"):
        make_sampler(Jacobi(), 4, stop_on_convergence=1)
