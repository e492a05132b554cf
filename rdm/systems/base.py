"""The interface between a model with its mathematics and everything around it (module, callbacks, scripts)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rdm.data.batching import Batch, counts_of
from rdm.decoding.candidates import Selection
from rdm.vocab import Vocab


@dataclass(frozen=True)
class Term:
    """One part of a loss, as a sum: divided by the ``unit``s in the whole optimiser step, times ``factor``."""

    name: str
    total: Tensor
    unit: str  # a key of Batch.counts
    factor: float = 1.0


@dataclass(frozen=True)
class Candidates:
    """All that was decoded for ``B`` sources, ``m`` texts each."""

    tokens: Tensor  # [B, m, N]
    scores: Tensor  # [B, m]
    chosen: Tensor  # [B] which of the m was returned


@dataclass(frozen=True)
class Hypotheses:
    """What was generated for ``B`` sources."""

    tokens: Tensor  # [B, N] ids, with special symbols and padding
    scores: Tensor  # [B]
    rows: Tensor  # [B] which of the rows an observer saw this one was
    candidates: Candidates | None = None  # where there was a choice
    calls: Tensor | None = None  # [B] network calls for the returned row, if counted


@dataclass(frozen=True)
class Likelihood:
    """The negative log-likelihood of ``B`` targets, the end of the text included."""

    nats: Tensor  # [B] float64
    tokens: Tensor  # [B] what it is divided by: the tokens of the text, and one for its end
    kind: Literal["exact", "bound", "surrogate"]


def choose(tokens: Tensor, scores: Tensor, sources: int, selection: Selection, vocab: Vocab) -> Hypotheses:
    """The selected one of the candidates of each source: ``tokens [B * m, N]``, ``scores [B * m]``."""
    tokens, scores = tokens.unflatten(0, (sources, -1)), scores.view(sources, -1)
    chosen = selection(tokens, vocab.is_ordinary(tokens), scores)
    first = torch.arange(sources, device=tokens.device)
    return Hypotheses(
        tokens=tokens[first, chosen],
        scores=scores[first, chosen],
        rows=first * tokens.shape[1] + chosen,
        candidates=Candidates(tokens, scores, chosen),
    )


class System(nn.Module, ABC):
    """Something that can be trained on batches and generate from them."""

    open_ended = False  # whether it continues text, instead of reading a source
    vocab: Vocab

    @abstractmethod
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        """The parts of the training loss, as sums over the batch."""

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The denominators that terms of the loss name as their ``unit``; a given prefix is not counted."""
        given = batch.source.shape[1] if self.open_ended else 0
        return counts_of(batch.target[:, given:], self.vocab)

    @abstractmethod
    def generate(
        self,
        source: Tensor,
        decoding: Any,
        generator: torch.Generator | None = None,
        observer: Callable[..., None] | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        """Outputs for sources ``[B, S]`` (see :class:`~rdm.data.batching.Batch`); a given prefix is not repeated.

        With a ``template [B, N]`` only its ``<mask>`` symbols are filled, and everything else stays as it is.
        """

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the denominators of the loss terms, by :attr:`Term.unit`, as scalar tensors."""
        return batch.counts

    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood | None:
        """How likely the targets are, with ``draws`` Monte-Carlo draws (None: as exact as can be); None if unknown."""
        return None

    def check(self, decoding: Any) -> None:
        """Raise a :class:`~rdm.errors.UserError` if this system cannot be decoded that way."""

    def fit_to(self, target_counts: Callable[[], Tensor]) -> None:
        """Take what is needed from the training data before training; ``target_counts()`` gives ``[V]`` id counts."""
