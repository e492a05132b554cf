"""The decoding of the Levenshtein Transformer: rounds of deletions, placeholders and tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from rdm.decoding.base import IteratedDecoding
from rdm.decoding.edit_trace import EditTrace
from rdm.decoding.proposal import token_log_probs
from rdm.decoding.sampler import Decoded, mean_score
from rdm.edits import insert_placeholders, keep_tokens
from rdm.errors import require
from rdm.vocab import Vocab


class Editor(Protocol):
    """The network, bound to its sources; ``rows [R]`` are the indices of the sources that ``tokens [R, N]`` are for."""

    def deletion(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Return logits ``[R, N, 2]``: keep or delete."""

    def insertion(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Return logits ``[R, N - 1, K]`` of the number of placeholders after each token but the last."""

    def filling(self, tokens: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """Return logits ``[P, V]`` at the ``positions [R, N]`` (bool)."""


@dataclass(frozen=True)
class Edit:
    """The rows after one kind of edit, as an observer sees them."""

    rows: Tensor  # [R] index of each row
    tokens: Tensor  # [R, N]
    origin: Tensor  # [R, N] column of each token before the edit; -1 if it is new
    scores: Tensor  # [R, N] log-probability of the token when it was filled in, or of the number of placeholders
    vocab: Vocab


Observer = Callable[[Edit], None]
"""Called with the initial rows, then after the deletions, the placeholders and the tokens of every round."""


class LevenshteinDecoding(IteratedDecoding):
    """Starts from ``<bos> <eos>`` and repeats: delete tokens, insert placeholders, fill them; each by argmax.

    A row is finished when a round does not change it. ``<bos>`` and ``<eos>`` are never deleted.

    Args:
        name: name of the strategy in result rows.
        steps: maximum number of rounds.
        placeholder_penalty: subtracted from the score of "no placeholder", for longer outputs.

    >>> print(LevenshteinDecoding("levenshtein"))
    levenshtein, 10 iterations
    """

    def __init__(self, name: str, steps: int = 10, placeholder_penalty: float = 0.0) -> None:
        require(steps >= 1, f"decoding.steps must be at least 1, got {steps}")
        self.name, self.steps, self.placeholder_penalty = name, steps, placeholder_penalty

    @property
    def candidates(self) -> int:
        return 1

    def trace(self) -> EditTrace:
        return EditTrace()

    @torch.inference_mode()
    def run(
        self,
        editor: Editor,
        initial: Tensor,
        longest: int,
        vocab: Vocab,
        observer: Observer | None = None,
    ) -> Decoded:
        """Edit ``initial [R, N]``, ``<bos> .. <eos>`` and padding; no row gets more than ``longest`` tokens."""
        rounds = _Rounds(editor, initial, longest, vocab, self.placeholder_penalty, observer)
        for _ in range(self.steps):
            if len(rounds.active):
                rounds.run_one()
        tokens, inner = rounds.tokens, (rounds.tokens != vocab.pad) & ~rounds.framing(rounds.tokens)
        rows = torch.arange(len(tokens), device=tokens.device)
        return Decoded(tokens, mean_score(rounds.scores, inner), rows, rounds.calls)


class _Rounds:
    """The rows of one decoding, of which only the ``active`` ones are edited further."""

    def __init__(
        self, editor: Editor, initial: Tensor, longest: int, vocab: Vocab, penalty: float, observer: Observer | None
    ) -> None:
        self.editor, self.longest, self.vocab, self.penalty, self.observer = editor, longest, vocab, penalty, observer
        self.tokens = initial
        self.scores = torch.zeros(initial.shape, device=initial.device)
        self.active = torch.arange(len(initial), device=initial.device)
        self.calls = torch.zeros_like(self.active)
        if observer is not None:
            observer(Edit(self.active, initial, torch.full_like(initial, -1), self.scores, vocab))

    def framing(self, tokens: Tensor) -> Tensor:
        return (tokens == self.vocab.bos) | (tokens == self.vocab.eos)

    def run_one(self) -> None:
        """Run one round on the active rows and find those it has not changed."""
        tokens, scores = self.tokens[self.active], self.scores[self.active]
        before = tokens
        if self.framing(tokens).sum() != (tokens != self.vocab.pad).sum():  # there is something to delete
            tokens, scores = self.delete(tokens, scores)
        tokens, scores = self.fill(*self.insert(tokens, scores))
        width = max(tokens.shape[1], self.tokens.shape[1])
        self.tokens = functional.pad(self.tokens, (0, width - self.tokens.shape[1]), value=self.vocab.pad)
        self.scores = functional.pad(self.scores, (0, width - self.scores.shape[1]))
        missing = width - tokens.shape[1]
        tokens = functional.pad(tokens, (0, missing), value=self.vocab.pad)
        self.tokens[self.active], self.scores[self.active] = tokens, functional.pad(scores, (0, missing))
        before = functional.pad(before, (0, width - before.shape[1]), value=self.vocab.pad)
        self.active = self.active[(tokens != before).any(1)]

    def delete(self, tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.editor.deletion(tokens, self.active)
        self.calls[self.active] += 1
        kept = (logits.argmax(-1) == 0) | self.framing(tokens)
        shorter, origin = keep_tokens(tokens, kept, self.vocab.pad)
        scores = scores.gather(1, origin.clamp(min=0))
        if not torch.equal(kept | (tokens == self.vocab.pad), torch.ones_like(kept)):
            self.observe(shorter, origin, scores)
        return shorter, scores

    def insert(self, tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self.editor.insertion(tokens, self.active).float().log_softmax(-1)
        self.calls[self.active] += 1
        penalised = log_probs.clone()
        penalised[..., 0] -= self.penalty
        counts = penalised.argmax(-1)
        longer, origin = insert_placeholders(tokens, counts, self.longest, self.vocab.mask, self.vocab.pad)
        gap = (origin >= 0).long().cumsum(1) - 1  # the last token before each placeholder
        of_gap = functional.pad(log_probs.amax(-1), (0, 1)).gather(1, gap)
        scores = torch.where(origin >= 0, scores.gather(1, origin.clamp(min=0)), of_gap)
        if longer.shape != tokens.shape or not torch.equal(longer, tokens):
            self.observe(longer, origin, scores)
        return longer, scores

    def fill(self, tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        masks = tokens == self.vocab.mask
        if masks.any():
            logits = self.editor.filling(tokens, self.active, masks)
            self.calls[self.active] += masks.any(1)
            chosen = logits.argmax(-1)
            tokens, scores = tokens.clone(), scores.clone()
            tokens[masks], scores[masks] = chosen, token_log_probs(logits, chosen)
        columns = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        self.observe(tokens, columns.masked_fill(tokens == self.vocab.pad, -1), scores)
        return tokens, scores

    def observe(self, tokens: Tensor, origin: Tensor, scores: Tensor) -> None:
        if self.observer is not None:
            self.observer(Edit(self.active, tokens, origin, scores, self.vocab))
