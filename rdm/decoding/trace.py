"""Observers that keep what decoding did, iteration by iteration, for people to read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from rdm.vocab import Vocab


@dataclass(frozen=True)
class Frame:
    """The rows after one iteration, each ``[R, N]``: tokens, which of them are noise, and how sure the model is.

    ``confidence`` is a probability: of a token when it was last denoised, or of what the model would have put in the
    place of noise. It is not a number where the model was not asked. Iteration 0 is the first noise.
    """

    iteration: int
    tokens: Tensor
    noisy: Tensor
    confidence: Tensor


class After(Protocol):
    """What is needed of the rows an iteration leaves behind, each ``[R, N]``."""

    @property
    def tokens(self) -> Tensor: ...

    @property
    def denoised(self) -> Tensor: ...

    @property
    def stored(self) -> Tensor:
        """Log-probability of each token when it was last denoised."""


class Before(Protocol):
    """What is needed of the rows it started from; noise is what is free and not denoised."""

    @property
    def tokens(self) -> Tensor: ...

    @property
    def denoised(self) -> Tensor: ...

    @property
    def free(self) -> Tensor: ...

    @property
    def rows(self) -> Tensor:
        """``[R]``, which of the rows seen first these are."""

    @property
    def scores(self) -> Tensor:
        """Log-probability of what the model proposes in this iteration."""


class Recording(Protocol):
    """An observer that collects one :class:`Frame` an iteration; ``legend`` says how to read their lines."""

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
            unknown = torch.full_like(state.scores, float("nan"))
            self.frames.append(Frame(0, state.tokens.cpu(), (state.free & ~state.denoised).cpu(), unknown.cpu()))
        confidence = torch.where(outcome.denoised, outcome.stored, state.scores).exp()
        seen = (outcome.tokens, state.free & ~outcome.denoised, confidence.masked_fill(~state.free, float("nan")))
        last = self.frames[-1]
        # Rows that were dropped stay as they were.
        after = (
            before.index_copy(0, state.rows.cpu(), now.cpu())
            for before, now in zip((last.tokens, last.noisy, last.confidence), seen, strict=True)
        )
        self.frames.append(Frame(len(self.frames), *after))


@dataclass
class GrowingText:
    """The recording of text that is written from left to right, before the first token and after each.

    Of a beam search it keeps the leading text of every source, and in the end the one returned.
    """

    frames: list[Frame] = field(default_factory=list)
    legend: str = "the leading text after each token"

    def __call__(self, tokens: Tensor, log_probs: Tensor) -> None:
        noisy = torch.zeros(tokens.shape, dtype=torch.bool)
        self.frames.append(Frame(len(self.frames), tokens.cpu(), noisy, log_probs.exp().cpu()))


class TokenState(StrEnum):
    """What an iteration did to a token."""

    NOISE = "noise"  # it was noise and still is
    NEW = "new"  # it is text that was not there before
    KEPT = "kept"  # it is text and was the same text before
    BACK = "back"  # it was text and was sent back to noise


@dataclass(frozen=True)
class Token:
    """A token as people see it, with its place in the row; ``confidence`` as in :class:`Frame`, or None."""

    text: str
    state: TokenState
    confidence: float | None
    position: int

    @property
    def noisy(self) -> bool:
        return self.state in (TokenState.NOISE, TokenState.BACK)


@dataclass(frozen=True)
class Step:
    """One row after one iteration; padding, ``<bos>`` and ``<eos>`` are not shown."""

    iteration: int
    tokens: list[Token]

    def __str__(self) -> str:
        """A line; what is still noise stands in ``[brackets]``."""
        return " ".join(f"[{token.text}]" if token.noisy else token.text for token in self.tokens)


class Pieces(Protocol):
    """What is needed to show ids: the text of each, and which are special."""

    @property
    def vocab(self) -> Vocab: ...

    def pieces(self, row: Sequence[int]) -> list[str]: ...


def steps(frames: Sequence[Frame], row: int, tokenizer: Pieces) -> list[Step]:
    """What happened to one row, the first noise included."""
    hidden = (tokenizer.vocab.pad, tokenizer.vocab.bos, tokenizer.vocab.eos)
    shown = []
    for before, after in pairwise([frames[0], *frames]):  # nothing comes before the first: it counts as unchanged
        ids, confidence = after.tokens[row].tolist(), after.confidence[row].tolist()
        states = token_states(before, after, row)
        columns = enumerate(zip(ids, tokenizer.pieces(ids), states, confidence, strict=True))
        tokens = [
            Token(text, state, None if sure != sure else sure, position)
            for position, (token, text, state, sure) in columns
            if token not in hidden
        ]
        shown.append(Step(after.iteration, tokens))
    return shown


def token_states(before: Frame, after: Frame, row: int) -> list[TokenState]:
    """The state of every token of a row. Text that was replaced by other text is new, whoever replaced it."""
    names = (TokenState.KEPT, TokenState.NEW, TokenState.NOISE, TokenState.BACK)
    was, noisy = before.noisy[row], after.noisy[row]
    changed = was | (before.tokens[row] != after.tokens[row])
    return [names[index] for index in torch.where(noisy, 2 + (~was).long(), changed.long()).tolist()]
