"""Open-ended text: how much a text repeats itself. No model is needed; see pretrained.py for those that need one."""

import math

from rdm.evaluation.metrics.base import Scorer, Skipped, Texts
from rdm.evaluation.metrics.sentence import ngrams


class Diversity(Scorer):
    """``100 * prod_{n=2..4} (1 - rep-n / 100)``, ``rep-n = 100 * (1 - different / all n-grams)``.

    Counted within each text and summed over texts before dividing (Su et al., 2022; their script overlooks the last
    n-gram of a text, this does not).
    """

    name = "diversity"

    def score(self, texts: Texts) -> tuple[float, str]:
        product, hypotheses = 100.0, [text.split() for text in texts.hypotheses]
        for n in (2, 3, 4):
            counts = [ngrams(words, n) for words in hypotheses]
            total = sum(count.total() for count in counts)
            if total == 0:
                raise Skipped(f"needs texts of {n} words or more")
            product *= sum(map(len, counts)) / total
        return product, "tok:words|n:2-4|percent"


class TokenEntropy(Scorer):
    """Mean entropy, in nats, of the words of a text: a low generative perplexity is worth little if this is low too."""

    name = "token_entropy"

    def score(self, texts: Texts) -> tuple[float, str]:
        entropies = []
        for text in texts.hypotheses:
            counts = ngrams(text.split(), 1)
            total = counts.total()
            entropies.append(sum(-count / total * math.log(count / total) for count in counts.values()))
        return sum(entropies) / len(entropies), "tok:words|nats|mean:texts"
