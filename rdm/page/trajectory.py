"""Trajectories: how texts were decoded, iteration by iteration, and the candidates they were selected from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rdm.decoding.base import Decoding
from rdm.decoding.trace import Frame, Pieces, Recording, Step, row_steps
from rdm.describe import flatten
from rdm.systems.base import Candidates, Hypotheses, System

MAX_INTERVALS = 100
"""Frames shown of long decodings, the first not counted: of the 2000 of DiffuSeq every twentieth."""


class TraceCodec(Pieces, Protocol):
    """The part of :class:`rdm.data.codec.Codec` that tracing needs: special symbols, text of ids, sources."""

    def sources(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of ids as the sources ``[B, S]`` of a batch."""

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of rows of ids."""


@dataclass(frozen=True)
class Candidate:
    """A decoded text: its length in tokens, its score by the model, and whether it was returned."""

    length: int
    score: float
    text: str
    chosen: bool


@dataclass(frozen=True)
class Trajectory:
    """How one text was decoded.

    Args:
        model: short name of the model.
        strategy: short name of the decoding.
        legend: how to read :meth:`lines`.
        settings: all settings of the decoding, by dotted key.
        steps: the tokens after each iteration.
        output: the text that was returned.
        candidates: all decoded texts, by score; empty if there was only one.
        calls: network calls for a candidate (mean); None if they are not counted.
        block_starts: positions at which a new block begins, with ``decoding.block``.
    """

    model: str
    strategy: str
    legend: str
    settings: dict[str, Any]
    steps: list[Step]
    output: str
    candidates: list[Candidate]
    calls: float | None = None
    block_starts: frozenset[int] = frozenset()

    def lines(self) -> list[str]:
        """One line of text per iteration."""
        return [f"{step.iteration:>4}  {step}" for step in self.steps]


@dataclass(frozen=True)
class Example:
    """A source, its references (none if they are unknown), and how one or more strategies decoded it."""

    source: str
    references: list[str]
    trajectories: list[Trajectory]


def trace_decoding(
    model: str, system: System, decoding: Decoding, codec: TraceCodec, rows: Sequence[list[int]], seed: int
) -> list[Trajectory]:
    """Decode sources in one batch and return the trajectory of each.

    Args:
        model: short name of the model, for headings.
        rows: ids of the sources, without special symbols.
        seed: of the random numbers of decoding.
    """
    device = next(system.parameters()).device
    generator, trace = torch.Generator(device).manual_seed(seed), decoding.trace()
    best = system.generate(codec.sources(rows).to(device), decoding, generator, trace)
    return list_trajectories(model, decoding, codec, best, trace, codec.decode(best.tokens.tolist()))


def list_trajectories(
    model: str, decoding: Decoding, codec: TraceCodec, best: Hypotheses, trace: Recording, texts: Sequence[str]
) -> list[Trajectory]:
    """How each text of ``best`` was decoded, as recorded by ``trace``; ``texts`` are those of its tokens."""
    frames, settings = thin_frames(trace.frames), flatten(decoding.describe())
    return [
        Trajectory(
            model=model,
            strategy=str(decoding),
            legend=trace.legend,
            settings=settings,
            steps=row_steps(frames, row, codec),
            output=text,
            candidates=[] if best.candidates is None else list_candidates(best.candidates, index, codec),
            calls=None if best.calls is None else float(best.calls[index]),
            block_starts=block_starts(trace.frames[0].noisy[row], settings.get("block")),
        )
        for index, (row, text) in enumerate(zip(best.rows.tolist(), texts, strict=True))
    ]


def block_starts(free: Tensor, size: int | None) -> frozenset[int]:
    """The positions at which blocks of ``size`` free positions begin, the first block not counted.

    >>> sorted(block_starts(torch.tensor([False, True, True, True, True, True, False]), size=2))
    [3, 5]
    """
    return frozenset() if size is None else frozenset(free.nonzero()[:, 0].tolist()[size::size])


def list_candidates(candidates: Candidates, index: int, codec: TraceCodec) -> list[Candidate]:
    """The candidates of source ``index``, highest score first."""
    vocab, tokens = codec.vocab, candidates.tokens[index]
    lengths = ((tokens != vocab.pad) & (tokens != vocab.bos) & (tokens != vocab.eos)).sum(1).tolist()
    chosen = [number == int(candidates.chosen[index]) for number in range(len(tokens))]
    scores, texts = candidates.scores[index].tolist(), codec.decode(tokens.tolist())
    listed = [Candidate(*each) for each in zip(lengths, scores, texts, chosen, strict=True)]
    return sorted(listed, key=lambda candidate: -candidate.score)


def thin_frames(frames: Sequence[Frame], intervals: int = MAX_INTERVALS) -> list[Frame]:
    """At most ``intervals + 1`` evenly spaced frames, including the first and the last."""
    last = len(frames) - 1
    return [frames[index] for index in dict.fromkeys(round(i * last / intervals) for i in range(intervals + 1))]
