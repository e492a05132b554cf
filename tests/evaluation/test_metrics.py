"""Metrics against values computed by hand, by brute force or by reference implementations."""

import builtins
import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from rdm.evaluation.metrics import pretrained
from rdm.evaluation.metrics.base import Metric, Scorer
from rdm.evaluation.metrics.corpus import ChrF, SacreBleu, TokenizedBleu, sacre_bleu, split_compounds
from rdm.evaluation.metrics.open_ended import Diversity, TokenEntropy
from rdm.evaluation.metrics.sentence import Dist1, Div4, RougeL, SelfBleu, SentenceBleu
from tests.evaluation.brute_force import sentence_bleu

PLAIN: list[Scorer] = [SacreBleu(), ChrF(), TokenizedBleu(), SentenceBleu(), RougeL(), Dist1(), Diversity()]
NEED_MODEL = [pretrained.BertScore, pretrained.Mauve, pretrained.Coherence, pretrained.GenerativePerplexity]


def number(metric: Metric) -> float:
    assert metric.value is not None, metric.skipped
    return metric.value


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


def test_repeated_bleu_does_not_grow_the_cache() -> None:
    """sacreBLEU caches tokenised sentences per BLEU object. The signature has the references of each call."""
    first = sacre_bleu(["a b c d"], [["a b c d"], ["x"]])
    kept = Tokenizer13a.__call__.cache_info().currsize
    assert sacre_bleu(["a b c d"], [["a b c d"], ["x"]]) == first
    assert "nrefs:2" in first[1]
    assert "nrefs:1" in sacre_bleu(["a b c d"], [["a b c d"]])[1]
    assert Tokenizer13a.__call__.cache_info().currsize == kept


# --- skipped metrics --------------------------------------------------------------------------------------------------


def assert_skipped(metric: Metric, reason: str) -> None:
    assert metric.value is None
    assert reason in str(metric.skipped)
    assert metric.row() == {"value": None, "skipped": metric.skipped, "settings": metric.settings}
    assert "skipped: " in str(metric)


@pytest.mark.parametrize("scorer", [SelfBleu(), Div4()], ids=lambda scorer: scorer.name)
@pytest.mark.parametrize("candidates", [[], [["a"], ["b"]], [["a", "b"], ["c"]]], ids=str)
def test_skipped_without_several_candidates(scorer: Scorer, candidates: Sequence[Sequence[str]]) -> None:
    assert_skipped(scorer(["a"], [["a"]], ["a"], candidates), "needs several candidates per source")


def test_diversity_skips_short_texts() -> None:
    assert_skipped(Diversity()(["a b c"], [["a"]]), "needs texts of 4 words")


@pytest.mark.parametrize("error", [OSError, ConnectionError, ImportError], ids=lambda error: error.__name__)
@pytest.mark.parametrize("kind", NEED_MODEL, ids=lambda kind: kind.name)
def test_skipped_without_model_or_package(
    kind: type[Scorer], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason names the model, whichever error its absence raises."""
    packages = ("bert_score", "mauve", "transformers")
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] in packages:
            raise error("no")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    scorer = kind()
    assert_skipped(scorer(["a"], [["a"]], ["a"]), f"needs {scorer.model}")  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [ValueError("another kind\nof model"), RuntimeError("no memory")], ids=str)
def test_skipped_if_the_model_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation continues, and the reason has the first line of the error."""

    def score(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(pretrained.BertScore, "score", score)
    reason = f"needs m in working order ({type(error).__name__}: {str(error).splitlines()[0]})"
    assert_skipped(pretrained.BertScore("m")(["a"], [["a"]]), reason)


def install_fake(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """Put a fake module into ``sys.modules``."""
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    monkeypatch.setattr(pretrained, "version", lambda package: "1")


def test_bertscore_of_empty_hypotheses_is_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model sees the others only, each with all its references; the mean is over all hypotheses."""

    class Model:
        def __init__(self, **options: Any) -> None:
            assert (options["model_type"], options["num_layers"]) == (str(tmp_path), 3)
            self._tokenizer = SimpleNamespace(model_max_length=10**30)

        def score(self, texts: list[str], references: list[list[str]]) -> tuple[Any, Any, torch.Tensor]:
            assert self._tokenizer.model_max_length == 512
            assert (texts, references) == (["a", "b"], [["r", "u"], ["t", "w"]])
            return None, None, torch.tensor([0.5, 0.25])

    install_fake(monkeypatch, "bert_score", BERTScorer=Model)
    metric = pretrained.BertScore(str(tmp_path), num_layers=3)(["a", " ", "b"], [["r", "s", "t"], ["u", "v", "w"]])
    assert number(metric) == pytest.approx(0.75 / 3)
    assert metric.signature.startswith(f"model:{tmp_path}|layer:3|nrefs:2")
    assert_skipped(pretrained.BertScore(str(tmp_path), num_layers=3)([""], [["r"]]), "not empty")


def test_mauve_compares_texts_preceded_by_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The references are the first sample, the hypotheses the second."""

    class Model:
        def __init__(self, *_: Any) -> None:
            pass

        def features(self, texts: list[str]) -> torch.Tensor:
            return torch.tensor([[len(text)] for text in texts])

    def compute_mauve(p_features: Any, q_features: Any, **_: Any) -> SimpleNamespace:
        assert (p_features.tolist(), q_features.tolist()) == ([[6], [5]], [[8], [4]])
        return SimpleNamespace(mauve=0.5, num_buckets=2)

    install_fake(monkeypatch, "mauve", compute_mauve=compute_mauve)
    monkeypatch.setattr(pretrained, "LanguageModel", Model)
    assert number(pretrained.Mauve("m")(["hypot", "h"], [["ref", "re"]], ["so", "so"])) == 50.0


def test_resolving_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing folders are used, missing ones raise, and the Hub is not contacted in offline mode."""
    assert pretrained.resolve_model(str(tmp_path)) == str(tmp_path)
    with pytest.raises(OSError, match="nothing"):
        pretrained.resolve_model(str(tmp_path / "nothing"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(pretrained.socket, "create_connection", lambda *_, **__: pytest.fail("contacted the Hub"))
    pretrained.hub_reachable.cache_clear()
    assert not pretrained.hub_reachable()
    pretrained.hub_reachable.cache_clear()


def test_language_model_from_a_folder(tmp_path: Path) -> None:
    """Batched log-likelihoods of a small random network equal those of one forward pass per text."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: index for index, word in enumerate(["<end>", "a", "b", "c", "d"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="<end>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>").save_pretrained(tmp_path)
    torch.manual_seed(0)
    settings = transformers.GPT2Config(vocab_size=5, n_embd=8, n_layer=1, n_head=1, n_positions=32)
    network = transformers.GPT2LMHeadModel(settings).eval()
    network.save_pretrained(tmp_path)

    def by_hand(prefix: str, text: str) -> list[float]:
        ids = torch.tensor([[words[word] for word in (prefix or "<end>").split() + text.split()]])
        log_probs = network(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1)
        return log_probs[-len(text.split()) :].tolist()

    prefixes, texts = ["a b", "c", "a b c"], ["c d a", "b", "d d"]
    single = [by_hand(prefix, text) for prefix, text in zip(prefixes, texts, strict=True)]
    coherence = pretrained.Coherence(str(tmp_path), batch_size=2)(texts, [texts], prefixes)
    assert number(coherence) == pytest.approx(sum(sum(one) / len(one) for one in single) / 3, rel=1e-4)
    alone = [score for text in texts for score in by_hand("", text)]
    perplexity = pretrained.GenerativePerplexity(str(tmp_path), batch_size=2)(texts, [texts], prefixes)
    assert number(perplexity) == pytest.approx(math.exp(-sum(alone) / len(alone)), rel=1e-4)
    assert_skipped(pretrained.Coherence(str(tmp_path))([""], [[""]], ["a"]), "not empty")


def test_comet_script(tmp_path: Path) -> None:
    """scripts/comet_score.py with a fake COMET whose score is the share of exact matches."""
    (tmp_path / "comet.py").write_text(
        "class Model:\n"
        "    def predict(self, samples, batch_size, gpus):\n"
        "        self.system_score = sum(s['mt'] == s['ref'] for s in samples) / len(samples)\n"
        "        assert {'src', 'mt', 'ref'} == samples[0].keys()\n"
        "        return self\n"
        "def download_model(name): return name\n"
        "def load_from_checkpoint(place): return Model()\n"
    )
    file = tmp_path / "x.jsonl"
    file.write_text(
        '{"source": "s", "references": ["a", "z"], "hypothesis": "a"}\n'
        '{"source": "s", "references": ["b"], "hypothesis": "c"}\n'
    )
    script = Path(__file__).parent.parent.parent / "scripts" / "comet_score.py"
    done = subprocess.run(
        [sys.executable, str(script), str(file)], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout == "COMET 0.5000, Unbabel/wmt22-comet-da, 2 sentences\n", done.stderr
    assert '"comet": 0.5' in (tmp_path / "x.comet.json").read_text()
