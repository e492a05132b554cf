"""Generated texts with the scores of their candidates, and scores of given pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch

from rdm.data.codec import Codec
from rdm.decoding.base import Decoding
from rdm.errors import UserError
from rdm.evaluation.decode import decode_batch
from rdm.systems.base import System


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
        candidates: all decoded texts: the returned one, then the others by score.
    """

    text: str
    score: float
    candidates: list[ScoredText]

    @classmethod
    def restore(cls, fields: Mapping[str, Any]) -> "Generated":
        """Make it from its fields as plain data."""
        return cls(fields["text"], fields["score"], [ScoredText(**each) for each in fields["candidates"]])


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


def generate_batch(
    system: System, decoding: Decoding, codec: Codec, rows: Sequence[list[int]], seed: int
) -> list[Generated]:
    """Decode sources in one batch.

    Args:
        rows: ids of the sources, without special symbols.
        seed: of the random numbers of decoding.
    """
    generator = torch.Generator(next(system.parameters()).device).manual_seed(seed)
    batch = decode_batch(system, decoding, codec, rows, generator)
    results = []
    columns = (batch.texts, batch.scores, batch.candidates, batch.candidate_scores, batch.chosen)
    for text, score, texts, scores, chosen in zip(*columns, strict=True):
        others = [ScoredText(*each) for index, each in enumerate(zip(texts, scores, strict=True)) if index != chosen]
        finished = [other for other in others if isfinite(other.score)]  # a beam may finish fewer texts than it is wide
        ranked = sorted(finished, key=lambda other: -other.score)
        results.append(Generated(text, score, [ScoredText(text, score), *ranked]))
    return results


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
