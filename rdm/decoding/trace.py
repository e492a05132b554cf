"""An observer that keeps what decoding did, iteration by iteration, for people to read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from rdm.vocab import Vocab


@dataclass(frozen=True)
class Frame:
    """The rows after one iteration: tokens ``[R, N]`` and which are noise; iteration 0 is the first noise."""

    iteration: int
    tokens: Tensor
    noisy: Tensor


class After(Protocol):
    """What is needed of the rows an iteration leaves behind, each ``[R, N]``."""

    @property
    def tokens(self) -> Tensor: ...

    @property
    def denoised(self) -> Tensor: ...


class Before(After, Protocol):
    """What is needed of the rows it started from; noise is what is free and not denoised."""

    @property
    def free(self) -> Tensor: ...


@dataclass
class Trace:
    """Collects one :class:`Frame` an iteration; hand it to a sampler as its observer."""

    frames: list[Frame] = field(default_factory=list)

    def __call__(self, state: Before, outcome: After) -> None:
        if not self.frames:
            self.frames.append(Frame(0, state.tokens.cpu(), (state.free & ~state.denoised).cpu()))
        self.frames.append(Frame(len(self.frames), outcome.tokens.cpu(), (state.free & ~outcome.denoised).cpu()))


class Pieces(Protocol):
    """What is needed to show ids: the text of each, and which are special."""

    vocab: Vocab

    def pieces(self, row: Sequence[int]) -> list[str]: ...


def lines(trace: Trace, row: int, tokenizer: Pieces) -> list[str]:
    """One line an iteration, the first noise included; what is still noise stands in ``[brackets]``."""
    hidden = (tokenizer.vocab.pad, tokenizer.vocab.bos, tokenizer.vocab.eos)
    text = []
    for frame in trace.frames:
        tokens = frame.tokens[row].tolist()
        shown = zip(tokens, tokenizer.pieces(tokens), frame.noisy[row].tolist(), strict=True)
        text.append(" ".join(f"[{piece}]" if noisy else piece for token, piece, noisy in shown if token not in hidden))
    return text
