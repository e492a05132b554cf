"""Metrics with pretrained models, most of them replaced by fakes."""

import builtins
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rdm.evaluation.metrics import pretrained
from rdm.evaluation.metrics.base import Scorer
from tests.evaluation.helpers import assert_skipped, number

SCORERS = [pretrained.BertScore, pretrained.Mauve, pretrained.Coherence, pretrained.GenerativePerplexity]


@pytest.mark.parametrize("error", [OSError, ConnectionError, ImportError], ids=lambda error: error.__name__)
@pytest.mark.parametrize("kind", SCORERS, ids=lambda kind: kind.name)
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
