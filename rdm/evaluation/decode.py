"""Decode many sources in batches of similar length."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from rich.progress import track
from torch import Tensor

from rdm.errors import require
from rdm.evaluation.hypotheses import Outputs
from rdm.systems.base import System


class SourceCodec(Protocol):
    """The part of :class:`rdm.data.codec.Codec` that decoding needs."""

    def sources(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of ids as the sources ``[B, S]`` of a batch."""

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of rows of ids."""


@dataclass(frozen=True)
class DecodedBatch:
    """Decoded text of the sources of one batch; see :class:`~rdm.evaluation.hypotheses.Outputs`."""

    texts: list[str]
    scores: list[float]
    candidates: list[list[str]]
    candidate_scores: list[list[float]]
    chosen: list[int]  # index of the returned candidate of each source
    calls: Tensor | None
    tokens: int  # of all hypotheses, without <bos>, <eos> and padding
    seconds: float


def decode_batch(
    system: System, decoding: Any, codec: SourceCodec, rows: Sequence[list[int]], generator: torch.Generator
) -> DecodedBatch:
    """Decode the sources ``rows`` (ids without special symbols) in one batch."""
    source = codec.sources(rows).to(generator.device)
    began = time.perf_counter()
    best = system.generate(source, decoding, generator)
    tokens = best.tokens.cpu()
    seconds = time.perf_counter() - began
    texts, scores = codec.decode(tokens.tolist()), best.scores.tolist()
    if best.candidates is None:  # the hypothesis is the only candidate
        groups, group_scores = [[text] for text in texts], [[score] for score in scores]
        chosen = [0] * len(texts)
    else:
        count = best.candidates.tokens.shape[1]
        flat = codec.decode(best.candidates.tokens.flatten(0, 1).tolist())
        groups, group_scores = (
            [flat[i : i + count] for i in range(0, len(flat), count)],
            best.candidates.scores.tolist(),
        )
        chosen = best.candidates.chosen.tolist()
    vocab = system.vocab
    count = int((~torch.isin(tokens, torch.tensor([vocab.pad, vocab.bos, vocab.eos]))).sum())
    return DecodedBatch(texts, scores, groups, group_scores, chosen, best.calls, count, seconds)


def decode_sources(
    system: System,
    decoding: Any,
    codec: SourceCodec,
    rows: Sequence[list[int]],
    batch_size: int,
    seed: int,
    progress: bool = True,
) -> Outputs:
    """Decode sources, longest first, and return the outputs in the order of ``rows``.

    Args:
        rows: ids of the sources, without special symbols.
        batch_size: sources per batch.
        seed: of the random numbers of decoding.
        progress: whether to show a progress bar.
    """
    require(batch_size >= 1, f"batch_size must be at least 1, got {batch_size}")
    device = next(system.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    texts, scores = [""] * len(rows), [0.0] * len(rows)
    candidates, candidate_scores = [[""]] * len(rows), [[0.0]] * len(rows)
    calls: list[Tensor | None] = []
    seconds, tokens = 0.0, 0
    for start in track(range(0, len(order), batch_size), str(decoding), disable=not progress):
        indices = order[start : start + batch_size]
        batch = decode_batch(system, decoding, codec, [rows[index] for index in indices], generator)
        seconds += batch.seconds
        tokens += batch.tokens
        calls.append(batch.calls)
        columns = zip(indices, batch.texts, batch.scores, batch.candidates, batch.candidate_scores, strict=True)
        for index, text, score, group, group_scores in columns:
            texts[index], scores[index] = text, score
            candidates[index], candidate_scores[index] = group, group_scores
    counted = [float(count.sum()) for count in calls if count is not None]
    total = sum(counted) if rows and len(counted) == len(calls) else None
    return Outputs(
        texts,
        scores,
        candidates,
        candidate_scores,
        seconds,
        calls_per_sentence=None if total is None else total / len(rows),
        tokens_per_call=None if not total else tokens / total,
    )
