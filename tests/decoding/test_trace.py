"""The trace of a decoding and its conversion to lines of text."""

from collections.abc import Sequence

import pytest
import torch

from rdm.decoding.routing import Commit, MaskPredict, PosteriorStep, Unconditional
from rdm.decoding.sampler import Canvas
from rdm.decoding.trace import Frame, GrowingText, Token, TokenState, Trace, row_steps
from rdm.decoding.transition import Outcome, State, Transition
from rdm.decoding.transition_times import DNDM
from rdm.diffusion.noise import Absorbing, Noise, Uniform
from rdm.vocab import Vocab
from tests.decoding.helpers import ContextDenoiser, Recorder, make_process, make_sampler, seeded

VOCAB = Vocab(size=10)
PAD, MASK, BOS, EOS = VOCAB.pad, VOCAB.mask, VOCAB.bos, VOCAB.eos
WORDS = ["<pad>", "<mask>", "<bos>", "<eos>", "<unk>", "a", "b", "c", "d", "e"]


class Words:
    """A minimal tokenizer for display."""

    vocab = VOCAB

    def pieces(self, row: Sequence[int]) -> list[str]:
        return [WORDS[index] for index in row]


CANVAS = Canvas(
    tokens=torch.tensor([[BOS, MASK, MASK, MASK, MASK, EOS], [BOS, MASK, MASK, EOS, PAD, PAD]]),
    pinned=torch.tensor([[True, False, False, False, False, True], [True, False, False, True, True, True]]),
)
NO_SPECIALS = {"absorbing": Absorbing(VOCAB, noise_specials=False), "uniform": Uniform(VOCAB)}


def lines(trace: Trace, row: int) -> list[str]:
    return [str(step) for step in row_steps(trace.frames, row, Words())]


def traced(
    transition: Transition, noise: Noise, iterations: int = 4, canvas: Canvas = CANVAS
) -> tuple[Trace, torch.Tensor]:
    process, trace = make_process(noise, 6), Trace()
    denoise = ContextDenoiser(process, canvas.tokens.shape[1])
    return trace, make_sampler(transition, iterations).run(process, denoise, canvas, seeded(3), trace).tokens


@pytest.mark.parametrize("iterations", [1, 4, 6])
@pytest.mark.parametrize("noise", NO_SPECIALS)
def test_one_frame_per_iteration(noise: str, iterations: int) -> None:
    """Frame 0 is the initial noise, the last frame the result."""
    trace, tokens = traced(Unconditional(), NO_SPECIALS[noise], iterations)
    assert [frame.iteration for frame in trace.frames] == list(range(iterations + 1))
    first, last = trace.frames[0], trace.frames[-1]
    drawn = NO_SPECIALS[noise].sample(CANVAS.tokens, seeded(3))  # the first sample of the sampler
    assert torch.equal(first.tokens, torch.where(CANVAS.pinned, CANVAS.tokens, drawn))
    assert torch.equal(first.noisy, ~CANVAS.pinned)
    assert torch.equal(last.tokens, tokens)
    assert not last.noisy.any()
    counts = [int(frame.noisy.sum()) for frame in trace.frames]
    assert counts == sorted(counts, reverse=True)


def test_frames_are_not_overwritten() -> None:
    """In all frames exactly the noisy positions are masks, under mask noise."""
    trace, _ = traced(Commit(), NO_SPECIALS["absorbing"])
    for frame in trace.frames:
        assert torch.equal(frame.tokens == MASK, frame.noisy)
    assert len({tuple(frame.tokens[0].tolist()) for frame in trace.frames}) == len(trace.frames)


def test_lines() -> None:
    """Noise is in brackets, whatever its token; padding, <bos> and <eos> are not shown."""
    tokens = torch.tensor([[BOS, 5, 6, 7, EOS, PAD], [BOS, MASK, 8, EOS, PAD, PAD]])
    after = torch.tensor([[BOS, 9, 6, 7, EOS, PAD], [BOS, 5, 8, EOS, PAD, PAD]])
    free = torch.tensor([[False, True, True, True, False, False], [False, True, True, False, False, False]])
    some = torch.tensor([[False, False, True, False, False, False], [False, True, False, False, False, False]])
    sure = torch.ones(2, 6)
    frames = [Frame(0, tokens, free, sure), Frame(1, tokens, some, sure), Frame(2, after, torch.zeros_like(free), sure)]
    assert lines(Trace(frames), 0) == ["[a] [b] [c]", "a [b] c", "e b c"]
    assert lines(Trace(frames), 1) == ["[<mask>] [d]", "[<mask>] d", "a d"]


def test_token_states() -> None:
    """All transitions between text and noise; the first and the last column are not shown."""
    nan = float("nan")
    frames = [
        Frame(
            iteration,
            torch.tensor([[BOS, *ids, EOS]]),
            torch.tensor([[False, *map(bool, noisy), False]]),
            torch.tensor([[nan, *sure, nan]]),
        )
        for iteration, (ids, noisy, sure) in enumerate(
            [
                ([5, MASK, MASK, MASK, 6], [0, 1, 1, 1, 0], [nan] * 5),
                ([5, 7, MASK, 8, 6], [0, 0, 1, 0, 0], [nan, 0.5, 0.125, 0.75, nan]),
                ([5, 7, MASK, MASK, 9], [0, 0, 1, 1, 0], [nan, 0.5, 0.25, 0.0625, nan]),
            ]
        )
    ]
    noise, new, kept, back = TokenState.NOISE, TokenState.NEW, TokenState.KEPT, TokenState.BACK
    first, second, third = row_steps(frames, 0, Words())
    assert [token.state for token in first.tokens] == [kept, noise, noise, noise, kept]
    assert [token.state for token in second.tokens] == [kept, new, noise, new, kept]
    assert third.tokens == [
        Token("a", kept, None, 1),
        Token("c", kept, 0.5, 2),
        Token("<mask>", noise, 0.25, 3),
        Token("<mask>", back, 0.0625, 4),
        Token("e", new, None, 5),  # text replaced by different text
    ]
    assert [step.iteration for step in (first, second, third)] == [0, 1, 2]


def test_token_states_of_growing_text() -> None:
    """A token is new once; if the leading text of a beam changes, its tokens are new again."""
    trace = GrowingText()
    for ids in ([PAD, PAD, PAD], [5, PAD, PAD], [6, 7, PAD], [6, 7, EOS]):
        trace(torch.tensor([ids]), torch.tensor([[0.5, 0.25, 1.0]]).log())
    new, kept = TokenState.NEW, TokenState.KEPT
    states = [[token.state for token in step.tokens] for step in row_steps(trace.frames, 0, Words())]
    assert states == [[], [new], [new, new], [kept, kept]]
    assert [token.confidence for token in row_steps(trace.frames, 0, Words())[-1].tokens] == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize("transition", [Unconditional(), MaskPredict(), PosteriorStep()])
def test_confidence(transition: Transition) -> None:
    """Of text: probability when last denoised; of noise: that of the proposal; NaN in the first frame."""
    process, trace, seen = make_process(NO_SPECIALS["absorbing"], 6), Trace(), Recorder()

    def observe(state: State, outcome: Outcome) -> None:
        trace(state, outcome)
        seen(state, outcome)

    denoise = ContextDenoiser(process, CANVAS.tokens.shape[1])
    make_sampler(transition, 4).run(process, denoise, CANVAS, seeded(3), observe)
    assert trace.frames[0].confidence.isnan().all()
    for frame, (state, outcome) in zip(trace.frames[1:], seen, strict=True):
        free = state.free
        expected = torch.where(outcome.denoised, outcome.stored, state.scores)[free].exp()
        assert torch.equal(frame.confidence[free], expected)
        assert frame.confidence[~free].isnan().all()
        assert ((expected > 0) & (expected <= 1)).all()


def test_confidence_is_nan_where_the_network_was_not_called() -> None:
    """DNDM calls it only at the positions it denoises, so noise has no confidence."""
    trace, _ = traced(DNDM(), NO_SPECIALS["absorbing"], 6)
    assert len(trace.frames) > 2
    for frame in trace.frames:
        assert torch.equal(frame.confidence.isnan(), frame.noisy | CANVAS.pinned)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("noise", NO_SPECIALS)
def test_lines_of_a_sampler(noise: str, row: int) -> None:
    """Everything is noise in the first line, nothing in the last, which equals the result."""
    trace, tokens = traced(Unconditional(), NO_SPECIALS[noise])
    shown = lines(trace, row)
    words = [WORDS[index] for index in tokens[row].tolist() if index not in (PAD, BOS, EOS)]
    assert len(shown) == len(trace.frames)
    assert all(piece.startswith("[") and piece.endswith("]") for piece in shown[0].split())
    assert shown[-1] == " ".join(words)
    assert [line.count("[") for line in shown] == [int(f.noisy[row].sum()) for f in trace.frames]


def test_pinned_text_is_not_shown_as_noise() -> None:
    """A pinned prefix is never in brackets."""
    canvas = Canvas(
        torch.tensor([[BOS, 5, 6, MASK, MASK, EOS]]), torch.tensor([[True, True, True, False, False, True]])
    )
    trace, _ = traced(Unconditional(), NO_SPECIALS["absorbing"], 2, canvas)
    shown = lines(trace, 0)
    assert shown[0] == "a b [<mask>] [<mask>]"
    assert shown[-1].startswith("a b ")
    assert "[" not in shown[-1]


@pytest.mark.parametrize("noise", NO_SPECIALS)
def test_posterior_step_ends_without_brackets(noise: str) -> None:
    """At step 0 nothing is noise."""
    trace, _ = traced(PosteriorStep(), NO_SPECIALS[noise], 6)
    assert "[" not in lines(trace, 0)[-1]
