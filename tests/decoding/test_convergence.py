"""Ending a row when the network's guess of its text repeats."""

import pytest
import torch

from rdm.decoding.convergence import Converged
from rdm.decoding.sampler import Canvas
from rdm.errors import UserError
from tests.decoding.helpers import (
    BARRED,
    TRANSITIONS,
    VOCAB,
    ContextDenoiser,
    decode,
    make_canvas,
    make_process,
    make_sampler,
)

OTHERS = [name for name in TRANSITIONS if name != "jacobi"]
"""Transitions that do not end by themselves."""


def constant(tokens: torch.Tensor, t: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
    """A network that is always certain of the same text."""
    ids = 2 + torch.arange(tokens.shape[1]) % 4
    logits = torch.full((*tokens.shape, VOCAB.size), BARRED)
    return logits.scatter(2, ids.expand_as(tokens)[..., None], 0.0)[active]


@pytest.mark.parametrize("patience", [1, 2])
@pytest.mark.parametrize("name", OTHERS)
def test_a_constant_network_is_asked_once_more(name: str, patience: int) -> None:
    """Every row needs at most 1 + patience calls and gets the text the network is certain of."""
    process, canvas = make_process("absorbing", 12), make_canvas([9, 4, 1, 0], prefix=1)
    decoded, seen = decode(TRANSITIONS[name](), process, constant, canvas, 12, stop_on_convergence=patience)
    plain, _ = decode(TRANSITIONS[name](), process, constant, canvas, 12)
    assert (decoded.calls <= torch.tensor([1 + patience] * 3 + [0])).all()
    assert torch.equal(decoded.tokens, plain.tokens)
    assert decoded.scores.tolist() == [0.0] * 4
    assert torch.equal(seen.seen[-1][1].denoised, ~canvas.pinned)


@pytest.mark.parametrize("name", OTHERS)
def test_rows_end_on_their_own(name: str) -> None:
    """The guess of an ended row was repeated; ended rows neither change nor cost a call."""
    process, canvas = make_process("absorbing", 20), make_canvas([9, 4, 6, 1], prefix=1)
    denoise = ContextDenoiser(process, 10, sharpness=4.0)
    denoise.by_place[:] = denoise.by_place[:1]  # the same at every step, so that texts converge
    decoded, seen = decode(TRANSITIONS[name](), process, denoise, canvas, 20, stop_on_convergence=1)
    ended = torch.zeros(4, dtype=torch.bool)
    previous = torch.full(canvas.tokens.shape, -1)
    for state, outcome in seen:
        asked = state.active.any(1)
        assert not (asked & ended).any()
        assert torch.equal(outcome.tokens[ended], state.tokens[ended])
        guess = torch.where(state.noisy, state.proposal, state.tokens)
        repeated = asked & ((guess == previous) | ~state.free).all(1)
        assert torch.equal(outcome.tokens[repeated], guess[repeated])
        assert torch.equal(outcome.denoised[repeated], state.free[repeated])
        previous = torch.where(asked[:, None], guess, previous)
        ended |= repeated
    assert ended.any()
    assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()


def test_rows_are_independent() -> None:
    """A row has the same text and calls alone and in a batch."""
    process, lengths = make_process("absorbing", 8), [5, 9, 2]
    denoise, canvas = ContextDenoiser(process, 11, sharpness=4.0), make_canvas(lengths, prefix=2)
    together, _ = decode(TRANSITIONS["uncond"](), process, denoise, canvas, 8, stop_on_convergence=1)
    for row, length in enumerate(lengths):
        one = Canvas(canvas.tokens[row : row + 1, : length + 2], canvas.pinned[row : row + 1, : length + 2])
        alone, _ = decode(TRANSITIONS["uncond"](), process, denoise, one, 8, stop_on_convergence=1)
        assert alone.tokens[0].tolist() == together.tokens[row, : length + 2].tolist()
        assert alone.calls[0] == together.calls[row]


def test_invalid_patience() -> None:
    with pytest.raises(UserError, match=r"decoding\.stop_on_convergence must be at least 1, got 0"):
        make_sampler(TRANSITIONS["uncond"](), 4, stop_on_convergence=0)
    assert Converged(TRANSITIONS["uncond"]()).patience == 1
