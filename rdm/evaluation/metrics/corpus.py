"""Corpus-level metrics by sacreBLEU."""

import re
from collections.abc import Sequence
from functools import lru_cache

from sacrebleu.metrics import BLEU, CHRF

from rdm.evaluation.metrics.base import Scorer, Texts

CHUNK = 1_000  # sentences whose n-grams are in memory


def corpus_score(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return ``metric.corpus_score``; n-grams are counted for :data:`CHUNK` sentences at a time.

    sacreBLEU holds the n-grams of all references at once, about 11 kB per sentence for BLEU.
    """
    hypotheses, references = list(hypotheses), [list(side) for side in references]
    metric._check_corpus_score_args(hypotheses, references)
    statistics = []
    for start in range(0, len(hypotheses), CHUNK):
        part = slice(start, start + CHUNK)
        statistics += metric._extract_corpus_statistics(hypotheses[part], [side[part] for side in references])
    return metric._aggregate_and_compute(statistics).score


@lru_cache(maxsize=1)
def _bleu() -> BLEU:
    """One object for all calls: sacreBLEU caches tokenised sentences per object, so new objects would leak memory."""
    return BLEU(force=True)  # no warning about text that ends in a separate full stop


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, str]:
    """Compute corpus BLEU (0 to 100) against one or more lists of references, and its signature."""
    bleu = _bleu()
    value = corpus_score(bleu, hypotheses, references)
    return value, str(bleu.get_signature())


class SacreBleu(Scorer):
    """Corpus BLEU of raw text, tokenised by sacreBLEU (13a); 0 to 100."""

    name = "sacrebleu"

    def score(self, texts: Texts) -> tuple[float, str]:
        return sacre_bleu(texts.hypotheses, texts.references)


class ChrF(Scorer):
    """chrF, the character n-gram F-score; 0 to 100."""

    name = "chrf"

    def score(self, texts: Texts) -> tuple[float, str]:
        chrf = CHRF()
        value = corpus_score(chrf, texts.hypotheses, texts.references)
        return value, str(chrf.get_signature())


def split_compounds(text: str) -> str:
    """Replace ``a-b`` by ``a ##AT##-##AT## b``.

    In one pass from the left, as in the script behind the published numbers: in ``rock-n-roll`` only the first hyphen
    is split, because the match consumes the letter after it.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", text)


class TokenizedBleu(Scorer):
    """The paper's BLEU for translation: case-sensitive multi-bleu after compound splitting; 0 to 100.

    Hypotheses and references must be Moses-tokenised. Values of raw text are not comparable with published ones.
    """

    name = "tokenized_bleu"

    def score(self, texts: Texts) -> tuple[float, str]:
        bleu = BLEU(tokenize="none", smooth_method="none", force=True)
        split = [[split_compounds(text) for text in side] for side in (texts.hypotheses, *texts.references)]
        value = corpus_score(bleu, split[0], split[1:])
        return value, f"{bleu.get_signature()}|compounds:split"
