"""Observers that record every iteration of a decoding, and their conversion to readable text."""

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
    """All rows after one iteration, each field ``[R, N]``; iteration 0 is the initial noise.

    ``confidence`` is a probability: of a denoised token when it was last denoised, of the proposal that was not taken
    at a noisy position. It is NaN where the network was not called.
    """

    iteration: int
    tokens: Tensor
    noisy: Tensor
    confidence: Tensor
    deleted: Tensor | None = None  # bool, tokens deleted in this iteration; None if the strategy deletes none


class After(Protocol):
    """The result of an iteration as far as a trace needs it, each ``[R, N]``."""

    @property
    def tokens(self) -> Tensor: ...

    @property
    def denoised(self) -> Tensor: ...

    @property
    def stored(self) -> Tensor:
        """Log-probability of each token when it was last denoised."""


class Before(Protocol):
    """The input of an iteration as far as a trace needs it; free positions that are not denoised are noise."""

    @property
    def tokens(self) -> Tensor: ...

    @property
    def denoised(self) -> Tensor: ...

    @property
    def free(self) -> Tensor: ...

    @property
    def rows(self) -> Tensor:
        """``[R]``, the index of each row in the first iteration."""

    @property
    def scores(self) -> Tensor:
        """Log-probability of the proposal in this iteration."""

    @property
    def scored(self) -> Tensor:
        """``[R, N]`` bool, the positions at which ``scores`` are valid."""


class Recording(Protocol):
    """An observer that appends one :class:`Frame` per iteration; ``legend`` explains how to read their lines."""

    legend: str

    @property
    def frames(self) -> list[Frame]: ...

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


@dataclass
class Trace:
    """Records the iterations of a sampler."""

    frames: list[Frame] = field(default_factory=list)
    legend: str = "[brackets] are still noise"

    def __call__(self, state: Before, outcome: After) -> None:
        if not self.frames:
            unknown = torch.full_like(state.scores, float("nan"))
            self.frames.append(Frame(0, state.tokens.cpu(), (state.free & ~state.denoised).cpu(), unknown.cpu()))
        confidence = torch.where(outcome.denoised, outcome.stored, state.scores).exp()
        seen = (outcome.tokens, state.free & ~outcome.denoised, confidence.masked_fill(~state.scored, float("nan")))
        last = self.frames[-1]
        # Pruned rows keep their last values.
        updated = (
            before.index_copy(0, state.rows.cpu(), now.cpu())
            for before, now in zip((last.tokens, last.noisy, last.confidence), seen, strict=True)
        )
        self.frames.append(Frame(len(self.frames), *updated))


@dataclass
class GrowingText:
    """Records left-to-right generation, before the first token and after each.

    For beam search it holds the leading text of every source, and at the end the returned one.
    """

    frames: list[Frame] = field(default_factory=list)
    legend: str = "the leading text after each token"

    def __call__(self, tokens: Tensor, log_probs: Tensor) -> None:
        noisy = torch.zeros(tokens.shape, dtype=torch.bool)
        self.frames.append(Frame(len(self.frames), tokens.cpu(), noisy, log_probs.exp().cpu()))


class TokenState(StrEnum):
    """The effect of an iteration on a token."""

    NOISE = "noise"  # noise before and after
    NEW = "new"  # text that was not there before
    KEPT = "kept"  # the same text as before
    BACK = "back"  # text that was sent back to noise
    DELETED = "deleted"  # text that is removed, shown in the iteration that removes it


@dataclass(frozen=True)
class Token:
    """A token for display with its position in the row; ``confidence`` as in :class:`Frame`, None instead of NaN."""

    text: str
    state: TokenState
    confidence: float | None
    position: int

    @property
    def noisy(self) -> bool:
        return self.state in (TokenState.NOISE, TokenState.BACK)


@dataclass(frozen=True)
class Step:
    """One row after one iteration, without padding, ``<bos>`` and ``<eos>``.

    Noise is shown in ``[brackets]``, deleted text between ``~tildes~``.

    >>> print(Step(1, [Token("the", TokenState.NEW, 0.9, 1), Token("<mask>", TokenState.NOISE, 0.4, 2)]))
    the [<mask>]
    """

    iteration: int
    tokens: list[Token]

    def __str__(self) -> str:
        """Return one line."""
        marks = {TokenState.NOISE: "[{}]", TokenState.BACK: "[{}]", TokenState.DELETED: "~{}~"}
        return " ".join(marks.get(token.state, "{}").format(token.text) for token in self.tokens)


class Pieces(Protocol):
    """A tokenizer as far as it is needed to display ids."""

    @property
    def vocab(self) -> Vocab: ...

    def pieces(self, row: Sequence[int]) -> list[str]:
        """Return the text of every id."""


def row_steps(frames: Sequence[Frame], row: int, tokenizer: Pieces) -> list[Step]:
    """Return all iterations of one row, including the initial noise."""
    hidden = (tokenizer.vocab.pad, tokenizer.vocab.bos, tokenizer.vocab.eos)
    shown = []
    for before, after in pairwise([frames[0], *frames]):  # the first frame counts as unchanged
        ids, confidence = after.tokens[row].tolist(), after.confidence[row].tolist()
        states = token_states(before, after, row)
        columns = enumerate(zip(ids, tokenizer.pieces(ids), states, confidence, strict=True))
        tokens = [
            Token(text, state, None if prob != prob else prob, position)
            for position, (token, text, state, prob) in columns
            if token not in hidden
        ]
        shown.append(Step(after.iteration, tokens))
    return shown


def token_states(before: Frame, after: Frame, row: int) -> list[TokenState]:
    """Return the state of every token of a row; text that was replaced by different text is new."""
    names = (TokenState.KEPT, TokenState.NEW, TokenState.NOISE, TokenState.BACK)
    was_noisy, noisy = before.noisy[row], after.noisy[row]
    changed = was_noisy | (before.tokens[row] != after.tokens[row])
    states = [names[index] for index in torch.where(noisy, 2 + (~was_noisy).long(), changed.long()).tolist()]
    if after.deleted is None:
        return states
    return [
        TokenState.DELETED if gone else state for gone, state in zip(after.deleted[row].tolist(), states, strict=True)
    ]
