"""The trace of a decoding, and the lines people read."""

from collections.abc import Sequence

import pytest
import torch

from rdm.decoding.routing import Commit, PosteriorStep, Transition, Unconditional
from rdm.decoding.sampler import Canvas
from rdm.decoding.trace import Frame, Trace, lines
from rdm.diffusion.noise import Absorbing, Noise, Uniform
from rdm.vocab import Vocab
from tests.decoding.helpers import Restless, make_process, make_sampler, seeded

VOCAB = Vocab(size=10)
PAD, MASK, BOS, EOS = VOCAB.pad, VOCAB.mask, VOCAB.bos, VOCAB.eos
WORDS = ["<pad>", "<mask>", "<bos>", "<eos>", "<unk>", "a", "b", "c", "d", "e"]


class Words:
    """Enough of a tokenizer to be shown."""

    vocab = VOCAB

    def pieces(self, row: Sequence[int]) -> list[str]:
        return [WORDS[index] for index in row]


CANVAS = Canvas(
    tokens=torch.tensor([[BOS, MASK, MASK, MASK, MASK, EOS], [BOS, MASK, MASK, EOS, PAD, PAD]]),
    pinned=torch.tensor([[True, False, False, False, False, True], [True, False, False, True, True, True]]),
)
NO_SPECIALS = {"absorbing": Absorbing(VOCAB, noise_specials=False), "uniform": Uniform(VOCAB)}


def traced(
    transition: Transition, noise: Noise, iterations: int = 4, canvas: Canvas = CANVAS
) -> tuple[Trace, torch.Tensor]:
    process, trace = make_process(noise, 6), Trace()
    denoise = Restless(process, canvas.tokens.shape[1])
    return trace, make_sampler(transition, iterations).run(process, denoise, canvas, seeded(3), trace).tokens


@pytest.mark.parametrize("iterations", [1, 4, 6])
@pytest.mark.parametrize("noise", NO_SPECIALS)
def test_frames(noise: str, iterations: int) -> None:
    """Frame 0 is the first noise, then one frame an iteration, the last of them the result."""
    trace, tokens = traced(Unconditional(), NO_SPECIALS[noise], iterations)
    assert [frame.iteration for frame in trace.frames] == list(range(iterations + 1))
    first, last = trace.frames[0], trace.frames[-1]
    drawn = NO_SPECIALS[noise].sample(CANVAS.tokens, seeded(3))  # the first thing the sampler draws
    assert torch.equal(first.tokens, torch.where(CANVAS.pinned, CANVAS.tokens, drawn))
    assert torch.equal(first.noisy, ~CANVAS.pinned)
    assert torch.equal(last.tokens, tokens)
    assert not last.noisy.any()
    counts = [int(frame.noisy.sum()) for frame in trace.frames]
    assert counts == sorted(counts, reverse=True)


def test_frames_are_not_overwritten() -> None:
    """Earlier frames keep what they showed: under mask noise, exactly the noisy positions are masks."""
    trace, _ = traced(Commit(), NO_SPECIALS["absorbing"])
    for frame in trace.frames:
        assert torch.equal(frame.tokens == MASK, frame.noisy)
    assert len({tuple(frame.tokens[0].tolist()) for frame in trace.frames}) == len(trace.frames)


def test_lines_by_hand() -> None:
    """Noise stands in brackets, whatever it looks like; padding, <bos> and <eos> are not shown."""
    tokens = torch.tensor([[BOS, 5, 6, 7, EOS, PAD], [BOS, MASK, 8, EOS, PAD, PAD]])
    after = torch.tensor([[BOS, 9, 6, 7, EOS, PAD], [BOS, 5, 8, EOS, PAD, PAD]])
    free = torch.tensor([[False, True, True, True, False, False], [False, True, True, False, False, False]])
    some = torch.tensor([[False, False, True, False, False, False], [False, True, False, False, False, False]])
    trace = Trace([Frame(0, tokens, free), Frame(1, tokens, some), Frame(2, after, torch.zeros_like(free))])
    assert lines(trace, 0, Words()) == ["[a] [b] [c]", "a [b] c", "e b c"]
    assert lines(trace, 1, Words()) == ["[<mask>] [d]", "[<mask>] d", "a d"]


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("noise", NO_SPECIALS)
def test_lines_of_a_decoding(noise: str, row: int) -> None:
    """All is noise in the first line, none in the last, which is the text that came out."""
    trace, tokens = traced(Unconditional(), NO_SPECIALS[noise])
    shown = lines(trace, row, Words())
    words = [WORDS[index] for index in tokens[row].tolist() if index not in (PAD, BOS, EOS)]
    assert len(shown) == len(trace.frames)
    assert all(piece.startswith("[") and piece.endswith("]") for piece in shown[0].split())
    assert shown[-1] == " ".join(words)
    assert [line.count("[") for line in shown] == [int(f.noisy[row].sum()) for f in trace.frames]


def test_pinned_text_is_not_shown_as_noise() -> None:
    """A pinned prefix is text from the start: it never stands in brackets."""
    canvas = Canvas(
        torch.tensor([[BOS, 5, 6, MASK, MASK, EOS]]), torch.tensor([[True, True, True, False, False, True]])
    )
    trace, _ = traced(Unconditional(), NO_SPECIALS["absorbing"], 2, canvas)
    shown = lines(trace, 0, Words())
    assert shown[0] == "a b [<mask>] [<mask>]"
    assert shown[-1].startswith("a b ")
    assert "[" not in shown[-1]


@pytest.mark.parametrize("noise", NO_SPECIALS)
def test_posterior_step_ends_without_brackets(noise: str) -> None:
    """At step 0 nothing is noise, for the posterior step as well: the last line has no brackets."""
    trace, _ = traced(PosteriorStep(), NO_SPECIALS[noise], 6)
    assert "[" not in lines(trace, 0, Words())[-1]
