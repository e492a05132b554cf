"""The interface of a trainable system, used by the training module, callbacks and scripts."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rdm.data.batch import Batch
from rdm.decoding.candidates import CandidateSet, Selection
from rdm.describe import Described
from rdm.terms import Term
from rdm.vocab import Vocab


@dataclass(frozen=True)
class Candidates:
    """All ``m`` candidates decoded for each of ``B`` sources."""

    tokens: Tensor  # [B, m, N]
    scores: Tensor  # [B, m]
    chosen: Tensor  # [B] index of the returned candidate


@dataclass(frozen=True)
class Hypotheses:
    """The texts generated for ``B`` sources."""

    tokens: Tensor  # [B, N] ids, with special symbols and padding
    scores: Tensor  # [B]
    rows: Tensor  # [B] index of each text among the rows that an observer sees
    candidates: Candidates | None = None  # None if only one text was decoded
    calls: Tensor | None = None  # [B] network calls for a candidate of the source (mean), if counted


@dataclass(frozen=True)
class Likelihood:
    """The negative log-likelihood of ``B`` targets, the end of the text included."""

    nats: Tensor  # [B] float64
    tokens: Tensor  # [B] denominator for a mean: the tokens of the text, and one for its end
    kind: Literal["exact", "bound", "surrogate"]


def choose(
    source: Tensor,
    tokens: Tensor,
    scores: Tensor,
    selection: Selection,
    vocab: Vocab,
    length_log_probs: Tensor | None = None,
) -> Hypotheses:
    """Select one candidate for each source.

    Args:
        source: ``[B, S]`` sources.
        tokens, scores: ``[B * m, N]`` candidates and their scores ``[B * m]``, those of a source consecutive.
        selection: chooses among the candidates of a source.
        length_log_probs: ``[B * m]`` log-probability of each candidate's length; None without a length head.
    """
    sources = len(source)
    tokens, scores = tokens.unflatten(0, (sources, -1)), scores.view(sources, -1)
    lengths = None if length_log_probs is None else length_log_probs.view(sources, -1)
    chosen = selection(CandidateSet(source, tokens, vocab.is_ordinary(tokens), scores, lengths))
    first = torch.arange(sources, device=tokens.device)
    return Hypotheses(
        tokens=tokens[first, chosen],
        scores=scores[first, chosen],
        rows=first * tokens.shape[1] + chosen,
        candidates=Candidates(tokens, scores, chosen),
    )


def mean_calls(calls: Tensor, sources: int) -> Tensor:
    """Return the mean number of network calls ``[B]`` for a candidate of each source, from those of all ``[B * m]``."""
    return calls.view(sources, -1).float().mean(1)


class System(Described, nn.Module, ABC):
    """A model with a training loss and a way to generate text."""

    open_ended = False  # True if it continues text instead of reading a source
    rescores = False  # True if it has an exact likelihood of one pass, by which it can choose among candidates

    vocab: Vocab

    @abstractmethod
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        """Return the terms of the training loss, as sums over the batch."""

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the denominators of the loss terms, as scalars on the device of the batch.

        Always ``sentences`` and target ``tokens`` (without padding); subclasses add the other units of their terms.
        """
        learned = self.learned_tokens(batch)
        sentences = torch.tensor(len(learned), device=learned.device)
        return {"sentences": sentences, "tokens": (learned != self.vocab.pad).sum()}

    def learned_tokens(self, batch: Batch) -> Tensor:
        """Return the target tokens of a batch without the prefix that an open-ended system only reads."""
        return batch.target[:, batch.source.shape[1] :] if self.open_ended else batch.target

    @abstractmethod
    def generate(
        self,
        source: Tensor,
        decoding: Any,
        generator: torch.Generator | None = None,
        observer: Callable[..., None] | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        """Generate a text for each of the sources ``[B, S]`` (see :class:`~rdm.data.batch.Batch`).

        The prefix that an open-ended system continues is not part of its output.

        Args:
            source: the sources.
            decoding: a decoding strategy that :meth:`check` accepts.
            generator: source of randomness.
            observer: called after each iteration; see the decoding strategy.
            template: ``[B, N]`` targets of which only the ``<mask>`` symbols are filled.
        """

    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood | None:
        """Return the likelihood of the targets, or None if the system has none.

        Args:
            batch: sources and targets.
            draws: number of Monte-Carlo draws; None is as exact as possible.
            generator: source of randomness.
        """
        return None

    def rescoring_likelihood(self, batch: Batch) -> Likelihood | None:
        """Return the likelihood by which the system chooses among candidates; see ``rescores``."""
        return self.likelihood(batch)

    def check(self, decoding: Any) -> None:
        """Raise a :class:`~rdm.errors.UserError` if ``decoding`` does not fit this system."""

    def fit_to(self, target_counts: Callable[[], Tensor]) -> None:
        """Fit the system to the training data; ``target_counts()`` computes id counts ``[V]``."""

    def load_pretrained(self) -> None:
        """Load pretrained weights, if the system starts from any; called before training, not when it is resumed."""
