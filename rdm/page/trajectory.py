"""What is shown of a decoding: the way to the text that was returned, and what it was chosen from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rdm.data.module import TextDataModule
from rdm.decoding.base import Decoding
from rdm.decoding.trace import Frame, Step, row_steps
from rdm.systems.base import Candidates, System

MOST_STEPS = 100
"""More iterations than people look at: of the 2000 of DiffuSeq, each twentieth is shown."""


@dataclass(frozen=True)
class Candidate:
    """A text that could have been returned; its length in tokens, and its score by the model."""

    length: int
    score: float
    text: str
    chosen: bool


@dataclass(frozen=True)
class Trajectory:
    """How one text was decoded."""

    model: str  # in a few words, like the strategy
    strategy: str
    legend: str  # how to read the lines
    settings: dict[str, Any]  # all that makes the strategy
    steps: list[Step]
    output: str
    candidates: list[Candidate]  # empty where there was no choice

    def lines(self) -> list[str]:
        """One line an iteration."""
        return [f"{step.iteration:>4}  {step}" for step in self.steps]


@dataclass(frozen=True)
class Example:
    """A source, what would be right (nothing, if nobody knows), and how it was decoded by one strategy or several."""

    source: str
    references: list[str]
    trajectories: list[Trajectory]


def follow(
    model: str,
    system: System,
    decoding: Decoding,
    data: TextDataModule,
    rows: Sequence[list[int]],
    seed: int,
    template: Tensor | None = None,
) -> list[Trajectory]:
    """Decode sources given as ``rows`` of ids together, and keep what happened to each."""
    device = next(system.parameters()).device
    generator, trace = torch.Generator(device).manual_seed(seed), decoding.trace()
    best = system.generate(data.sources(rows).to(device), decoding, generator, trace, template)
    frames, texts = thinned(trace.frames), data.tokenizer.decode(best.tokens.tolist())
    return [
        Trajectory(
            model=model,
            strategy=str(decoding),
            legend=trace.legend,
            settings=decoding.describe(),
            steps=row_steps(frames, row, data.tokenizer),
            output=text,
            candidates=[] if best.candidates is None else candidates_of(best.candidates, index, data),
        )
        for index, (row, text) in enumerate(zip(best.rows.tolist(), texts, strict=True))
    ]


def candidates_of(candidates: Candidates, index: int, data: TextDataModule) -> list[Candidate]:
    """Those of one source, the best score first."""
    vocab, tokens = data.vocab, candidates.tokens[index]
    lengths = ((tokens != vocab.pad) & (tokens != vocab.bos) & (tokens != vocab.eos)).sum(1).tolist()
    chosen = [number == int(candidates.chosen[index]) for number in range(len(tokens))]
    scores, texts = candidates.scores[index].tolist(), data.tokenizer.decode(tokens.tolist())
    found = [Candidate(*each) for each in zip(lengths, scores, texts, chosen, strict=True)]
    return sorted(found, key=lambda candidate: -candidate.score)


def thinned(frames: Sequence[Frame], most: int = MOST_STEPS) -> list[Frame]:
    """At most ``most + 1`` frames, evenly spread, the first and the last among them."""
    last = len(frames) - 1
    return [frames[index] for index in dict.fromkeys(round(i * last / most) for i in range(most + 1))]
