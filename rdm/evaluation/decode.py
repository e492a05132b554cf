"""Decode the sources of one batch."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rdm.page.trajectory import TraceCodec, Trajectory, list_trajectories
from rdm.systems.base import System


class SourceCodec(TraceCodec, Protocol):
    """The part of :class:`rdm.data.codec.Codec` that decoding needs."""

    def templates(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of ids with ``<mask>`` at the positions to fill as the targets ``[B, N]`` of a batch."""


@dataclass(frozen=True)
class DecodedBatch:
    """Decoded text of the sources of one batch; see :class:`~rdm.evaluation.hypotheses.Outputs`."""

    texts: list[str]
    scores: list[float]
    candidates: list[list[str]]
    candidate_scores: list[list[float]]
    chosen: list[int]  # index of the returned candidate of each source
    calls: Tensor | None
    sizes: list[int]  # tokens of each hypothesis, without <bos>, <eos> and padding
    seconds: float
    traces: list[Trajectory] | list[None]


def decode_batch(
    system: System,
    decoding: Any,
    codec: SourceCodec,
    rows: Sequence[list[int]],
    generator: torch.Generator,
    template: Tensor | None = None,
    model: str | None = None,
) -> DecodedBatch:
    """Decode sources in one batch.

    Args:
        rows: ids of the sources, without special symbols.
        template: see :meth:`~rdm.systems.base.System.generate`.
        model: name of the model in the traces; None records none.
    """
    source = codec.sources(rows).to(generator.device)
    trace = None if model is None else decoding.trace()
    began = time.perf_counter()
    best = system.generate(source, decoding, generator, trace, template)
    tokens = best.tokens.cpu()
    seconds = time.perf_counter() - began
    texts, scores = codec.decode(tokens.tolist()), best.scores.tolist()
    if best.candidates is None:  # the hypothesis is the only candidate
        groups, group_scores = [[text] for text in texts], [[score] for score in scores]
        chosen = [0] * len(texts)
    else:
        count = best.candidates.tokens.shape[1]
        flat = codec.decode(best.candidates.tokens.flatten(0, 1).tolist())
        groups = [flat[i : i + count] for i in range(0, len(flat), count)]
        group_scores = best.candidates.scores.tolist()
        chosen = best.candidates.chosen.tolist()
    traces: list[Trajectory] | list[None] = [None] * len(texts)
    if model is not None and trace is not None:
        traces = list_trajectories(model, decoding, codec, best, trace, texts)
    vocab = system.vocab
    sizes = (~torch.isin(tokens, torch.tensor([vocab.pad, vocab.bos, vocab.eos]))).sum(1).tolist()
    return DecodedBatch(texts, scores, groups, group_scores, chosen, best.calls, sizes, seconds, traces)
