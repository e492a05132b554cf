"""Sentence-level metrics of DiffuSeq's protocol for question generation and paraphrase; 0 to 1."""

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import torch
from torch.nn.utils.rnn import pad_sequence

from rdm.decoding.bleu import ORDERS, pairwise_bleu, smoothed_bleu
from rdm.evaluation.metrics.base import Scorer, Skipped, Texts


def ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """Count the n-grams of a text."""
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))


class SentenceBleu(Scorer):
    """Mean sentence BLEU over words, as NLTK computes it with smoothing method 4.

    The official script swaps hypotheses and references; this implementation does not.
    """

    name = "sentence_bleu"

    def score(self, texts: Texts) -> tuple[float, str]:
        matches, lengths, closest = [], [], []
        for hypothesis, *targets in zip(texts.hypotheses, *texts.references, strict=True):
            words, others = hypothesis.split(), [target.split() for target in targets]
            matches.append([self._matches(words, others, n) for n in range(1, ORDERS + 1)])
            lengths.append(len(words))
            closest.append(min((abs(len(other) - len(words)), len(other)) for other in others)[1])
        scores = smoothed_bleu(torch.tensor(matches), torch.tensor(lengths), torch.tensor(closest))
        signature = f"nrefs:{len(texts.references)}|case:mixed|tok:words|smooth:nltk-method4|mean:sentences"
        return scores.mean().item(), signature

    @staticmethod
    def _matches(words: Sequence[str], references: Sequence[Sequence[str]], n: int) -> int:
        """N-grams of the hypothesis found in references, each clipped to its maximum count in any one of them."""
        most: Counter[tuple[str, ...]] = Counter()
        for reference in references:
            most |= ngrams(reference, n)
        return (ngrams(words, n) & most).total()


class RougeL(Scorer):
    """Mean ROUGE-L F1 by torchmetrics: lower case, letters a-z and digits only, best of all references."""

    name = "rouge_l"

    def score(self, texts: Texts) -> tuple[float, str]:
        from torchmetrics.functional.text import rouge_score

        targets = [list(group) for group in zip(*texts.references, strict=True)]
        scores = rouge_score(list(texts.hypotheses), targets, accumulate="best", rouge_keys="rougeL")
        signature = f"nrefs:{len(texts.references)}|case:lower|stem:no|torchmetrics:{version('torchmetrics')}"
        return scores["rougeL_fmeasure"].item(), signature


def distinct_ngrams(groups: Sequence[Sequence[str]], n: int) -> float:
    """Mean over groups of texts of ``unique n-grams / all n-grams``; a group without n-grams counts as 0."""
    shares = []
    for group in groups:
        counts = sum((ngrams(text.split(), n) for text in group), Counter[tuple[str, ...]]())
        shares.append(len(counts) / max(counts.total(), 1))
    return sum(shares) / len(shares)


class Dist1(Scorer):
    """Dist-1: mean share of unique words in a hypothesis."""

    name = "dist_1"

    def score(self, texts: Texts) -> tuple[float, str]:
        return distinct_ngrams([[text] for text in texts.hypotheses], 1), "tok:words|mean:sentences"


class Div4(Scorer):
    """Div-4: mean share of unique 4-grams among all candidates of a source."""

    name = "div_4"

    def score(self, texts: Texts) -> tuple[float, str]:
        count = candidate_count(texts.candidates)
        return distinct_ngrams(texts.candidates, 4), f"tok:words|mean:sources|candidates:{count}"


class SelfBleu(Scorer):
    """Self-BLEU: mean sentence BLEU over pairs of candidates of a source; lower is more diverse."""

    name = "self_bleu"

    def score(self, texts: Texts) -> tuple[float, str]:
        count, total = candidate_count(texts.candidates), 0.0
        first, second = torch.triu_indices(count, count, offset=1)
        for chunk in split_groups(texts.candidates, 50):
            ids: dict[str, int] = {}
            rows = [
                torch.tensor([ids.setdefault(word, len(ids) + 1) for word in text.split()], dtype=torch.long)
                for group in chunk
                for text in group
            ]
            tokens = pad_sequence(rows, batch_first=True).view(len(chunk), count, -1)
            total += pairwise_bleu(tokens, tokens > 0)[:, first, second].mean(1).sum().item()
        return total / len(texts.candidates), f"tok:words|smooth:nltk-method4|mean:sources|candidates:{count}"


def candidate_count(candidates: Sequence[Sequence[str]]) -> int:
    """The number of candidates per source; raises :class:`Skipped` if there is only one or the number varies."""
    counts = {len(group) for group in candidates}
    if len(counts) != 1 or min(counts) < 2:
        raise Skipped("needs several candidates per source, e.g. decoding=mbr")
    return counts.pop()


def split_groups(groups: Sequence[Sequence[str]], size: int) -> Iterator[Sequence[Sequence[str]]]:
    """Split a sequence into parts of ``size``; the last one may be shorter."""
    for start in range(0, len(groups), size):
        yield groups[start : start + size]
