"""Observers that keep what decoding did, iteration by iteration, for people to read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
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

    @property
    def rows(self) -> Tensor:
        """``[R]``, which of the rows seen first these are."""


class Recording(Protocol):
    """An observer that collects one :class:`Frame` an iteration; ``legend`` says how to read them."""

    legend: str
    frames: list[Frame]

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


@dataclass
class Trace:
    """The recording of a sampler."""

    frames: list[Frame] = field(default_factory=list)
    legend: str = "[brackets] are still noise"

    def __call__(self, state: Before, outcome: After) -> None:
        if not self.frames:
            self.frames.append(Frame(0, state.tokens.cpu(), (state.free & ~state.denoised).cpu()))
        last = self.frames[-1]  # rows that were dropped stay as they were
        tokens, noisy, rows = last.tokens.clone(), last.noisy.clone(), state.rows.cpu()
        tokens[rows], noisy[rows] = outcome.tokens.cpu(), (state.free & ~outcome.denoised).cpu()
        self.frames.append(Frame(len(self.frames), tokens, noisy))


@dataclass
class GrowingText:
    """The recording of a beam search: the leading text of every source, and in the end the one returned."""

    frames: list[Frame] = field(default_factory=list)
    legend: str = "the leading text after each token"

    def __call__(self, tokens: Tensor) -> None:
        self.frames.append(Frame(len(self.frames), tokens.cpu(), torch.zeros(tokens.shape, dtype=torch.bool)))


class Pieces(Protocol):
    """What is needed to show ids: the text of each, and which are special."""

    vocab: Vocab

    def pieces(self, row: Sequence[int]) -> list[str]: ...


def lines(trace: Recording, row: int, tokenizer: Pieces) -> list[str]:
    """One line an iteration, the first noise included; what is still noise stands in ``[brackets]``."""
    hidden = (tokenizer.vocab.pad, tokenizer.vocab.bos, tokenizer.vocab.eos)
    text = []
    for frame in trace.frames:
        tokens = frame.tokens[row].tolist()
        shown = zip(tokens, tokenizer.pieces(tokens), frame.noisy[row].tolist(), strict=True)
        text.append(" ".join(f"[{piece}]" if noisy else piece for token, piece, noisy in shown if token not in hidden))
    return text
