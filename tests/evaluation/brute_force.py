"""Metrics computed directly from their definitions."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence


def ngrams(words: Sequence[Hashable], n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def sentence_bleu(hypothesis: Sequence[Hashable], references: Sequence[Sequence[Hashable]]) -> float:
    """NLTK's sentence BLEU with smoothing method 4."""
    logs, without_match = [], 0
    for n in range(1, 5):
        counts = ngrams(hypothesis, n)
        most = Counter[tuple[Hashable, ...]]()
        for reference in references:
            most |= ngrams(reference, n)
        matches: float = sum((counts & most).values())
        if n == 1 and matches == 0:
            return 0.0
        if matches == 0 and len(hypothesis) > 1:
            without_match += 1
            matches = math.log(len(hypothesis)) / (5 * 2**without_match)
        if matches > 0:
            logs.append(math.log(matches / max(1, sum(counts.values()))) / 4)
    closest = min((abs(len(r) - len(hypothesis)), len(r)) for r in references)[1]
    brevity = 1.0 if len(hypothesis) > closest else math.exp(1 - closest / len(hypothesis))
    return brevity * math.exp(sum(logs))
