"""Corpus-level overlap with references, by sacreBLEU."""

import re
from collections.abc import Sequence
from functools import lru_cache

from sacrebleu.metrics import BLEU, CHRF

from rdm.evaluation.metrics.base import Scorer, Texts


@lru_cache(maxsize=1)
def _bleu() -> BLEU:
    """One for all texts: sacreBLEU keeps each sentence for as long as it can under the object that has tokenised it."""
    return BLEU(force=True)  # our own text ends in a separate full stop


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, str]:
    """Corpus BLEU and its signature, against one or more lists of references."""
    bleu = _bleu()
    value = bleu.corpus_score(list(hypotheses), [list(stream) for stream in references]).score
    return value, str(bleu.get_signature())


class SacreBleu(Scorer):
    """BLEU on raw text, tokenised by sacreBLEU itself (13a); 0 to 100."""

    name = "sacrebleu"

    def score(self, texts: Texts) -> tuple[float, str]:
        return sacre_bleu(texts.hypotheses, texts.references)


class ChrF(Scorer):
    """Character n-gram F score; 0 to 100."""

    name = "chrf"

    def score(self, texts: Texts) -> tuple[float, str]:
        chrf = CHRF()
        value = chrf.corpus_score(list(texts.hypotheses), [list(stream) for stream in texts.references]).score
        return value, str(chrf.get_signature())


def split_compounds(text: str) -> str:
    """``a-b`` becomes ``a ##AT##-##AT## b``.

    One pass from the left, as in the script behind the published numbers: of ``rock-n-roll`` only the first hyphen is
    split, because the letter after it is used up.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", text)


class TokenizedBleu(Scorer):
    """The paper's BLEU for translation: case-sensitive multi-bleu after compound splitting; 0 to 100.

    For text that is tokenised already (Moses), hypotheses and references alike; on raw text it compares with nothing.
    """

    name = "tokenized_bleu"

    def score(self, texts: Texts) -> tuple[float, str]:
        bleu = BLEU(tokenize="none", smooth_method="none", force=True)
        split = [[split_compounds(text) for text in side] for side in (texts.hypotheses, *texts.references)]
        value = bleu.corpus_score(split[0], split[1:]).score
        return value, f"{bleu.get_signature()}|compounds:split"
