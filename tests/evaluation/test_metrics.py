"""Metrics against values computed by hand, by brute force or by reference implementations."""

import math
import random
from collections.abc import Sequence

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from rdm.evaluation.metrics import corpus, pretrained
from rdm.evaluation.metrics.base import Scorer
from rdm.evaluation.metrics.corpus import ChrF, SacreBleu, TokenizedBleu, sacre_bleu, split_compounds
from rdm.evaluation.metrics.open_ended import Diversity, TokenEntropy
from rdm.evaluation.metrics.sentence import Dist1, Div4, RougeL, SelfBleu, SentenceBleu
from tests.evaluation.brute_force import sentence_bleu
from tests.evaluation.helpers import assert_skipped, number

PLAIN: list[Scorer] = [SacreBleu(), ChrF(), TokenizedBleu(), SentenceBleu(), RougeL(), Dist1(), Diversity()]


def random_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices("abcd", k=rng.randint(0, 9))) for _ in range(count)]


@pytest.mark.parametrize("scorer", PLAIN, ids=lambda scorer: scorer.name)
def test_identical_text_has_the_best_value(scorer: Scorer) -> None:
    texts = ["the cat sat on a mat", "dogs run over green hills"]
    metric = scorer(texts, [texts], texts)
    best = 1 if scorer.name in ("sentence_bleu", "rouge_l", "dist_1") else 100
    assert number(metric) == pytest.approx(best)
    assert metric.signature


def test_signatures_of_sacrebleu() -> None:
    metric = SacreBleu()(["a b c d x"], [["a b c d e"], ["a b c d x"]])
    assert number(metric) == pytest.approx(100)
    assert metric.signature.startswith("nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert ChrF()(["a"], [["a"]]).signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_compounds_are_split_in_one_pass() -> None:
    """As in the script behind the published numbers, which misses overlapping hyphens."""
    assert split_compounds("well-known - fact") == "well ##AT##-##AT## known - fact"
    assert split_compounds("rock-n-roll") == "rock ##AT##-##AT## n-roll"


def test_tokenized_bleu_by_hand() -> None:
    """Six words after splitting, ``a b ##AT##-##AT## c d e`` against ``... f``: precisions 5/6, 4/5, 3/4, 2/3."""
    metric = TokenizedBleu()(["a b-c d e"], [["a b-c d f"]])
    assert number(metric) == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)
    assert "tok:none|smooth:none" in metric.signature
    assert "compounds:split" in metric.signature
    assert number(TokenizedBleu()(["A B-c d e"], [["a b-c d e"]])) < 100  # case counts


def test_tokenized_bleu_does_not_tokenise() -> None:
    assert number(TokenizedBleu()(["a b c d e."], [["a b c d e ."]])) < 100
    assert number(SacreBleu()(["a b c d e."], [["a b c d e ."]])) == pytest.approx(100)


def test_rows_have_the_settings_of_the_scorer() -> None:
    """With and without a value; defaults included."""
    assert SacreBleu()(["a"], [["a"]]).row()["settings"] == {"class": "SacreBleu"}
    mauve = pretrained.Mauve("./missing", seed=3)(["a"], [["a"]])
    expected = {"class": "Mauve", "model": "./missing", "batch_size": 16, "max_tokens": 1024, "seed": 3}
    assert mauve.row() == {"value": None, "skipped": mauve.skipped, "settings": expected}


def test_sentence_bleu_by_hand() -> None:
    """``a b c d`` against ``a b c e``: 3/4, 2/3, 1/2, and log(4)/(5*2) for 4-grams; no brevity penalty."""
    expected = (3 / 4 * 2 / 3 * 1 / 2 * math.log(4) / 10) ** 0.25
    assert number(SentenceBleu()(["a b c d"], [["a b c e"]])) == pytest.approx(expected)
    # 2 words against 4: brevity penalty exp(-1); bigram, trigram and 4-gram count log(2)/10, /20 and /40.
    orders = 1 / 2 * math.log(2) / 10 * math.log(2) / 20 * math.log(2) / 40
    assert number(SentenceBleu()(["a x"], [["a b c d"]])) == pytest.approx(math.exp(1 - 2) * orders**0.25)
    assert number(SentenceBleu()(["x y", ""], [["a b", "a"]])) == 0


def test_sentence_bleu_is_not_symmetric() -> None:
    """Short hypotheses have a brevity penalty, long ones a lower precision."""
    short, long = "a b c d e", "a b c d e f g"
    assert number(SentenceBleu()([short], [[long]])) == pytest.approx(math.exp(1 - 7 / 5))
    assert number(SentenceBleu()([long], [[short]])) == pytest.approx((5 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25)


def test_sentence_bleu_by_brute_force() -> None:
    hypotheses, references = random_texts(200, 0), [random_texts(200, 1), random_texts(200, 2)]
    single = [
        sentence_bleu(hypothesis.split(), [target.split() for target in targets])
        for hypothesis, *targets in zip(hypotheses, *references, strict=True)
    ]
    assert number(SentenceBleu()(hypotheses, references)) == pytest.approx(sum(single) / 200)


def test_sentence_bleu_against_nltk() -> None:
    from nltk.translate import bleu_score as nltk

    method4 = nltk.SmoothingFunction().method4
    for hypothesis, one, two in zip(*(random_texts(300, seed) for seed in (3, 4, 5)), strict=True):
        words, targets = hypothesis.split(), [one.split(), two.split()]
        expected = nltk.sentence_bleu(targets, words, smoothing_function=method4)
        assert number(SentenceBleu()([hypothesis], [[one], [two]])) == pytest.approx(expected, abs=1e-12)
        assert sentence_bleu(words, targets) == pytest.approx(expected, abs=1e-12)


def test_rouge_l_by_hand() -> None:
    """``the cat was there`` and ``the cat is there now``: common subsequence of 3, P = 3/4, R = 3/5, F = 2/3."""
    assert number(RougeL()(["the cat was there"], [["the cat is there now"]])) == pytest.approx(2 / 3)
    assert number(RougeL()(["the cat was there"], [["no"], ["the cat was there"]])) == pytest.approx(1)


def test_distinct_by_hand() -> None:
    """Dist-1 is a mean over sentences (1/2 and 3/3); div-4 is a mean over sources, whose candidates are pooled."""
    assert number(Dist1()(["a a b b", "a b c"], [["", ""]])) == pytest.approx(0.75)
    candidates = [["a b c d e", "a b c d"], ["a b c d", "e f g h"]]  # 2 of 3 unique, 2 of 2
    assert number(Div4()([], [[]], [], candidates)) == pytest.approx((2 / 3 + 1) / 2)


def test_self_bleu_by_brute_force() -> None:
    texts = random_texts(3 * 70, 6)
    candidates = [texts[i : i + 3] for i in range(0, len(texts), 3)]
    means = [
        sum(sentence_bleu(one.split(), [two.split()]) for one, two in ((a, b), (a, c), (b, c))) / 3
        for a, b, c in candidates
    ]
    metric = SelfBleu()([], [[]], [], candidates)
    assert number(metric) == pytest.approx(sum(means) / 70)
    assert "candidates:3" in metric.signature
    assert number(SelfBleu()([], [[]], [], [["", ""]])) == 0


def test_diversity_by_hand() -> None:
    """``a b a b a``: 2 of 4 bigrams, 2 of 3 trigrams, 2 of 2 4-grams; ``c d e f``: 3 of 3, 2 of 2, 1 of 1."""
    expected = 100 * (2 + 3) / (4 + 3) * (2 + 2) / (3 + 2) * (2 + 1) / (2 + 1)
    assert number(Diversity()(["a b a b a", "c d e f"], [[]])) == pytest.approx(expected)


def test_token_entropy_by_hand() -> None:
    """Two equally frequent words: log 2; one word: 0."""
    assert number(TokenEntropy()(["a b a b", "a a a"], [[]])) == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("metric", [BLEU(force=True), BLEU(tokenize="none"), CHRF()], ids=["raw", "tokenized", "chrf"])
def test_corpus_scores_are_those_of_sacrebleu(metric: BLEU | CHRF, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of sentences whose n-grams are in memory at once; with two references."""
    monkeypatch.setattr(corpus, "CHUNK", chunk)
    rng = random.Random(0)
    columns = [[" ".join(rng.choices("abc", k=rng.randint(0, 9))) for _ in range(20)] for _ in range(3)]
    expected = metric.corpus_score(columns[0], columns[1:]).score
    signature = str(metric.get_signature())
    assert 0 < expected < 100
    assert corpus.corpus_score(metric, columns[0], columns[1:]) == expected
    assert str(metric.get_signature()) == signature


def test_repeated_bleu_does_not_grow_the_cache() -> None:
    """sacreBLEU caches tokenised sentences per BLEU object. The signature has the references of each call."""
    first = sacre_bleu(["a b c d"], [["a b c d"], ["x"]])
    kept = Tokenizer13a.__call__.cache_info().currsize
    assert sacre_bleu(["a b c d"], [["a b c d"], ["x"]]) == first
    assert "nrefs:2" in first[1]
    assert "nrefs:1" in sacre_bleu(["a b c d"], [["a b c d"]])[1]
    assert Tokenizer13a.__call__.cache_info().currsize == kept


@pytest.mark.parametrize("scorer", [SelfBleu(), Div4()], ids=lambda scorer: scorer.name)
@pytest.mark.parametrize("candidates", [[], [["a"], ["b"]], [["a", "b"], ["c"]]], ids=str)
def test_skipped_without_several_candidates(scorer: Scorer, candidates: Sequence[Sequence[str]]) -> None:
    assert_skipped(scorer(["a"], [["a"]], ["a"], candidates), "needs several candidates per source")


def test_diversity_skips_short_texts() -> None:
    assert_skipped(Diversity()(["a b c"], [["a"]]), "needs texts of 4 words")
