"""Texts generated for many sources, with the scores of their candidates, and scores of given pairs.

Everything is computed in batches of similar length that do not depend on each other, so that scripts and the Python
API give the same outputs, and work that was interrupted can continue.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from rdm.data.codec import Codec
from rdm.decoding.base import Decoding
from rdm.errors import UserError
from rdm.evaluation.batched_work import BatchedWork, batches_by_length
from rdm.evaluation.decode import DecodedBatch, SourceCodec, decode_batch
from rdm.evaluation.hypotheses import Outputs
from rdm.page.page import embed
from rdm.page.trajectory import Example, Trajectory
from rdm.systems.base import System

Rows = Mapping[int, list[int]]
"""Ids of texts without special symbols, by the number of the text; empty texts are left out."""


@dataclass(frozen=True)
class ScoredText:
    """A text and its score by the model."""

    text: str
    score: float


@dataclass(frozen=True)
class Generated:
    """The output for one source.

    Attributes:
        text: the returned text.
        score: its score by the model, a mean log-probability per token (for beam search: see ``length_penalty``).
        candidates: decoded texts: the returned one, then the others by score. A beam that did not finish has the
            score ``-inf``.
        calls: network calls for a candidate (mean); None if the system does not count them.
        tokens: number of tokens of the returned text.
        seconds: decoding time of its batch divided by the size of the batch.
        source: the text it was generated from.
        trace: how the text was decoded, if that was asked for.
    """

    text: str
    score: float
    candidates: list[ScoredText]
    calls: float | None = None
    tokens: int = 0
    seconds: float = 0.0
    source: str = ""
    trace: Trajectory | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.text

    def best(self, count: int | None) -> list[ScoredText]:
        """The first ``count`` candidates with a finite score: a beam may finish fewer texts than it is wide."""
        return [each for each in self.candidates if isfinite(each.score)][:count]

    def _repr_html_(self) -> str:
        """In a notebook: the text, or every iteration of its decoding if there is a trace."""
        if self.trace is None:
            return f"<p>{html.escape(self.text)}</p>"
        return embed([Example(self.source, [], [self.trace])])

    @classmethod
    def restore(cls, fields: Mapping[str, Any]) -> "Generated":
        """Make it from its fields as plain data."""
        return cls(**{**fields, "candidates": [ScoredText(**each) for each in fields["candidates"]]})


EMPTY = Generated("", 0.0, [])
"""The output for an empty source."""


@dataclass(frozen=True)
class SentenceScore:
    """The negative log-likelihood of one target, its end included.

    Attributes:
        nats: ``-log p(target | source)``.
        tokens: denominator for a mean per token.
        kind: ``exact``, ``bound`` (an upper bound on the exact value) or ``surrogate`` (not a bound).
    """

    nats: float
    tokens: int
    kind: str

    @classmethod
    def restore(cls, fields: Mapping[str, Any]) -> "SentenceScore":
        """Make it from its fields as plain data."""
        return cls(**fields)


def generation_work(
    system: System,
    decoding: Decoding,
    codec: SourceCodec,
    rows: Rows,
    count: int,
    batch_size: int,
    seed: int,
    model: str | None = None,
    templates: Rows | None = None,
) -> BatchedWork[Generated]:
    """Decoding of ``count`` texts in batches.

    Args:
        rows: ids of the sources.
        count: number of texts, those without a row included.
        batch_size: sources per batch; batches are sorted by length.
        seed: of the random numbers of the first batch; the next one has ``seed + 1``, and so on.
        model: name of the model in the trace of every output; None records no traces.
        templates: for each source the ids of a target of which only the ``<mask>`` symbols are filled.
    """
    lengths = {index: (len(row), len(templates[index]) if templates else 0) for index, row in rows.items()}
    batches = batches_by_length(lengths, batch_size, system.open_ended)

    def compute(number: int) -> list[Generated]:
        chosen = [rows[index] for index in batches[number]]
        device = next(system.parameters()).device
        filled: Tensor | None = None
        if templates is not None:
            filled = codec.templates([templates[index] for index in batches[number]]).to(device)
        generator = torch.Generator(device).manual_seed(seed + number)
        return list_outputs(decode_batch(system, decoding, codec, chosen, generator, filled, model))

    return BatchedWork(count, batches, compute, Generated.restore)


def list_outputs(batch: DecodedBatch) -> list[Generated]:
    """One output per source of a batch."""
    calls = [None] * len(batch.texts) if batch.calls is None else batch.calls.tolist()
    results = []
    scored = (batch.texts, batch.scores, batch.candidates, batch.candidate_scores, batch.chosen)
    columns = zip(*scored, calls, batch.sizes, batch.traces, strict=True)
    for text, score, texts, scores, chosen, called, size, trace in columns:
        others = [ScoredText(*each) for index, each in enumerate(zip(texts, scores, strict=True)) if index != chosen]
        ranked = sorted(others, key=lambda other: -other.score)
        seconds = batch.seconds / len(batch.texts)
        candidates = [ScoredText(text, score), *ranked]
        results.append(Generated(text, score, candidates, called, size, seconds, trace=trace))
    return results


def decode_sources(
    system: System,
    decoding: Decoding,
    codec: SourceCodec,
    rows: Sequence[list[int]],
    batch_size: int,
    seed: int,
    label: str | None = None,
) -> Outputs:
    """Decode sources, longest first, and return the outputs in the order of ``rows``.

    Args:
        rows: ids of the sources, without special symbols.
        label: heading of the progress bar; None shows none.
    """
    work = generation_work(system, decoding, codec, dict(enumerate(rows)), len(rows), batch_size, seed)
    return as_outputs([EMPTY if each is None else each for each in work.run(label=label)])


def as_outputs(generated: Sequence[Generated]) -> Outputs:
    """The columns of several outputs."""
    counted = [each.calls for each in generated if each.calls is not None]
    calls = sum(counted) if counted and len(counted) == len(generated) else None
    return Outputs(
        texts=[each.text for each in generated],
        scores=[each.score for each in generated],
        candidates=[[candidate.text for candidate in each.candidates] for each in generated],
        candidate_scores=[[candidate.score for candidate in each.candidates] for each in generated],
        seconds=sum(each.seconds for each in generated),
        calls_per_sentence=None if calls is None else calls / len(generated),
        tokens_per_call=None if not calls else sum(each.tokens for each in generated) / calls,
    )


def with_sources(generated: Sequence[Generated | None], sources: Sequence[str]) -> list[Generated]:
    """Outputs with the texts they were generated from; those of empty texts are empty."""
    pairs = zip(generated, sources, strict=True)
    return [replace(EMPTY if each is None else each, source=source) for each, source in pairs]


def scoring_work(
    system: System, codec: Codec, sources: Rows, targets: Rows, count: int, batch_size: int, seed: int
) -> BatchedWork[SentenceScore]:
    """Scoring of ``count`` pairs in batches; the arguments are those of :func:`generation_work`."""
    lengths = {index: (max(len(row), len(targets[index])), 0) for index, row in sources.items()}
    if system.open_ended:  # without padding: prompts of one length with continuations of one length
        lengths = {index: (len(row), len(targets[index])) for index, row in sources.items()}
    batches = batches_by_length(lengths, batch_size, system.open_ended)

    def compute(number: int) -> list[SentenceScore]:
        chosen = batches[number]
        sides = [sources[index] for index in chosen], [targets[index] for index in chosen]
        return score_batch(system, codec, *sides, seed + number)

    return BatchedWork(count, batches, compute, SentenceScore.restore)


def score_batch(
    system: System, codec: Codec, sources: Sequence[list[int]], targets: Sequence[list[int]], seed: int
) -> list[SentenceScore]:
    """Score targets in one batch, as exactly as the system can.

    Args:
        sources, targets: aligned rows of ids, without special symbols.
        seed: of the random numbers of a bound.
    """
    device = next(system.parameters()).device
    batch = codec.batch(sources, targets)
    batch.source, batch.target = batch.source.to(device), batch.target.to(device)
    likelihood = system.likelihood(batch, None, torch.Generator(device).manual_seed(seed))
    if likelihood is None:
        raise UserError(f"score: {type(system).__name__} has no likelihood")
    columns = zip(likelihood.nats.tolist(), likelihood.tokens.tolist(), strict=True)
    return [SentenceScore(nats, tokens, likelihood.kind) for nats, tokens in columns]
