"""Metrics, each with how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU


@dataclass(frozen=True)
class Metric:
    """A value and its signature."""

    name: str
    value: float
    signature: str


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Metric:
    """Corpus BLEU on raw text, against one or more lists of references."""
    bleu = BLEU(force=True)  # our own text ends in a separate full stop
    score = bleu.corpus_score(list(hypotheses), [list(stream) for stream in references]).score
    return Metric("sacrebleu", score, str(bleu.get_signature()))
