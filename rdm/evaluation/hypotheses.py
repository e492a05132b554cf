"""Files of decoded text: ``<run>/hypotheses/<hash>.jsonl``, one JSON object per source."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdm.errors import require
from rdm.evaluation.results import Row, read_lines


@dataclass(frozen=True)
class Outputs:
    """Decoded text of ``n`` sources, in the order of the sources.

    Args:
        texts: ``n`` hypotheses.
        scores: ``n`` scores of the hypotheses by the model.
        candidates: for each source all texts its hypothesis was selected from, itself included.
        candidate_scores: their scores by the model.
        seconds: decoding time without tokenisation.
        calls_per_sentence: network calls for a candidate, a mean of all; None if the system does not count them.
        tokens_per_call: tokens of all hypotheses divided by the network calls for them; None likewise.
    """

    texts: list[str]
    scores: list[float]
    candidates: list[list[str]]
    candidate_scores: list[list[float]]
    seconds: float
    calls_per_sentence: float | None = None
    tokens_per_call: float | None = None


def write_hypotheses(file: Path, sources: Sequence[str], references: Sequence[Sequence[str]], outputs: Outputs) -> None:
    """Write one line per source.

    Its keys are ``source``, ``references``, ``hypothesis``, ``score``, ``candidates`` and ``scores`` (of candidates).

    Args:
        references: one or more lists of references, each aligned with ``sources``.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    names = ("source", "references", "hypothesis", "score", "candidates", "scores")
    columns = (
        sources,
        zip(*references, strict=True),
        outputs.texts,
        map(rounded, outputs.scores),
        outputs.candidates,
        ([rounded(score) for score in scores] for scores in outputs.candidate_scores),
    )
    # A job with the same settings writes the same content; renaming keeps readers from seeing half a file.
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as stream:
        for values in zip(*columns, strict=True):
            stream.write(json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False) + "\n")
    draft.replace(file)


def rounded(score: float) -> float | None:
    """Six significant digits; None for infinity and NaN, which JSON does not have."""
    return float(f"{score:.6g}") if math.isfinite(score) else None


def read_hypotheses(file: Path) -> list[Row]:
    """Read a file of :func:`write_hypotheses`; ``score`` and ``scores`` are absent from files of older versions."""
    require(file.is_file(), f"{file} does not exist; name a file of <run>/hypotheses")
    lines = read_lines(file, "a line with source, references and hypothesis")
    require(all(map(_is_hypothesis, lines)), f"{file} has no hypotheses; name a file of <run>/hypotheses")
    counts = {len(line["references"]) for line in lines}
    require(len(counts) == 1, f"{file}: all lines need the same number of references, got {sorted(counts) or 'none'}")
    return lines


def _is_hypothesis(line: Row) -> bool:
    source, references, hypothesis = (line.get(name) for name in ("source", "references", "hypothesis"))
    if not isinstance(references, list) or not references:
        return False
    return all(isinstance(text, str) for text in (source, hypothesis, *references))
