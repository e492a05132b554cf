"""Repetition metrics of open-ended text that need no pretrained model."""

import math

from rdm.evaluation.metrics.base import Scorer, Skipped, Texts
from rdm.evaluation.metrics.sentence import ngrams


class Diversity(Scorer):
    """Diversity ``100 * prod_{n=2..4} (1 - rep-n / 100)``, ``rep-n = 100 * (1 - unique / all n-grams)``.

    N-grams are counted within each text, and counts are summed over texts before dividing (Su et al., 2022). Their
    script omits the last n-gram of each text; this implementation counts it.
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
    """Mean entropy of the words of a text, in nats. Repetitive text has low entropy and low generative perplexity."""

    name = "token_entropy"

    def score(self, texts: Texts) -> tuple[float, str]:
        entropies = []
        for text in texts.hypotheses:
            counts = ngrams(text.split(), 1)
            total = counts.total()
            entropies.append(sum(-count / total * math.log(count / total) for count in counts.values()))
        return sum(entropies) / len(entropies), "tok:words|nats|mean:texts"
