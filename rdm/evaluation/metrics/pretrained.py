"""Metrics that need a pretrained model from a local folder, the Hub cache or the Hub, and the ``metrics`` extra.

They are skipped if the model or a package is not available; an error of theirs never fails an evaluation.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rdm.evaluation.metrics.base import Metric, Scorer, Skipped, Texts


@lru_cache(maxsize=1)
def hub_reachable() -> bool:
    """Whether the Hub answers within three seconds; its own client would retry for half a minute."""
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() not in ("0", "", "FALSE", "NO", "OFF"):
        return False
    if "https" in getproxies():
        return True
    host = urlparse(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.create_connection((str(host), 443), timeout=3).close()
    except OSError:
        return False
    return True


def resolve_model(model: str) -> str:
    """Resolve ``model`` to a folder or, if the Hub is reachable, to its Hub id; raises :class:`OSError`."""
    if Path(model).is_dir():
        return model
    if model.startswith((".", "/", "~")):
        raise FileNotFoundError(model)
    if hub_reachable():
        return model
    from huggingface_hub import snapshot_download

    return snapshot_download(model, local_files_only=True)


def default_device() -> str:
    """The device of pretrained models."""
    return "cuda" if torch.cuda.is_available() else "cpu"


class PretrainedScorer(Scorer):
    """Base class of scorers with a pretrained model.

    Args:
        model: a Hub id or a local folder.
        batch_size: texts per batch.
    """

    def __init__(self, model: str, batch_size: int = 16) -> None:
        self.model, self.batch_size = model, batch_size

    def compute(self, texts: Texts) -> Metric:
        try:
            return super().compute(texts)
        except ImportError:
            reason = f"needs {self.model} and the metrics extra (pip install -e '.[metrics]')"
        except OSError:  # raised by transformers and the Hub client without a network (ConnectionError is one)
            reason = f"needs {self.model}"
        except Exception as error:  # e.g. a model of the wrong type, a damaged file, out of memory
            message = str(error).partition("\n")[0]
            reason = f"needs {self.model} in working order ({type(error).__name__}: {message})"
        return Metric(self.name, None, skipped=reason)


class BertScore(PretrainedScorer):
    """Mean BERTScore F1; 0 to 1.

    Args:
        num_layers: the layer whose representations are compared; 40 is the recommended one of the default model.
    """

    name = "bertscore"

    def __init__(
        self, model: str = "microsoft/deberta-xlarge-mnli", num_layers: int = 40, batch_size: int = 16
    ) -> None:
        super().__init__(model, batch_size)
        self.num_layers = num_layers

    def score(self, texts: Texts) -> tuple[float, str]:
        from bert_score import BERTScorer

        scorer = BERTScorer(
            model_type=resolve_model(self.model),
            num_layers=self.num_layers,
            batch_size=self.batch_size,
            device=default_device(),
        )
        # Some tokenizers have a placeholder of 10^30 here, which overflows in fast tokenizers.
        scorer._tokenizer.model_max_length = min(scorer._tokenizer.model_max_length, 512)
        # Empty hypotheses score 0, as in bert-score, which fails on them with some tokenizers.
        pairs = [
            (text, group) for text, *group in zip(texts.hypotheses, *texts.references, strict=True) if text.strip()
        ]
        if not pairs:
            raise Skipped("needs a hypothesis that is not empty")
        _, _, f1 = scorer.score([text for text, _ in pairs], [group for _, group in pairs])
        signature = f"model:{self.model}|layer:{self.num_layers}|nrefs:{len(texts.references)}|idf:no|rescaled:no"
        return f1.sum().item() / len(texts.hypotheses), f"{signature}|bert-score:{version('bert-score')}"


class LanguageModel:
    """A pretrained causal language model that scores text.

    Args:
        model: a Hub id or a local folder.
        batch_size: texts per batch.
        max_tokens: longer inputs are truncated.
    """

    def __init__(self, model: str, batch_size: int, max_tokens: int) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        source = resolve_model(model)
        self.tokenizer = AutoTokenizer.from_pretrained(source)
        network: Any = AutoModelForCausalLM.from_pretrained(source)
        self.model = network.to(default_device()).eval()
        self.batch_size, self.max_tokens = batch_size, max_tokens

    def ids(self, text: str, special: bool) -> list[int]:
        """Tokenise a text, with the special tokens of the model or without."""
        return self.tokenizer(text, add_special_tokens=special).input_ids

    @torch.inference_mode()
    def _run(self, rows: Sequence[list[int]]) -> Iterator[tuple[list[int], Any, int]]:
        """Yield every row of ids with the model's output for its batch and its index in the batch."""
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            padded = pad_sequence([torch.tensor(row) for row in batch], batch_first=True).to(default_device())
            lengths = torch.tensor([len(row) for row in batch], device=padded.device)
            mask = (torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]).long()
            output = self.model(input_ids=padded, attention_mask=mask, output_hidden_states=True)
            yield from ((row, output, index) for index, row in enumerate(batch))

    def log_probs(self, prefixes: Sequence[str], texts: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each text, given its prefix (or the start symbol if that is empty)."""
        start = self.tokenizer.bos_token_id
        if start is None:
            start = self.tokenizer.eos_token_id
        contexts = [self.ids(prefix, special=True) or [start] for prefix in prefixes]
        # Tokenizers distinguish words inside a sentence by the space before them.
        joined = [f" {text}" if prefix and text else text for prefix, text in zip(prefixes, texts, strict=True)]
        rows = [
            (c + self.ids(text, special=False))[: self.max_tokens] for c, text in zip(contexts, joined, strict=True)
        ]
        results = []
        for context, (row, output, index) in zip(contexts, self._run(rows), strict=True):
            logits = output.logits[index, len(context) - 1 : len(row) - 1].float()
            targets = torch.tensor(row[len(context) :], dtype=torch.long, device=logits.device)
            results.append(logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1).cpu())
        return results

    def features(self, texts: Sequence[str]) -> Tensor:
        """The features MAUVE compares, ``[texts, D]``: the last hidden state of the last token of each text."""
        rows = [self.ids(text, special=True)[: self.max_tokens] or [self.tokenizer.eos_token_id] for text in texts]
        return torch.stack([o.hidden_states[-1][i, len(row) - 1].float().cpu() for row, o, i in self._run(rows)])


class Mauve(PretrainedScorer):
    """MAUVE of the hypotheses against the first references, each preceded by its source; percent."""

    name = "mauve"

    def __init__(self, model: str = "gpt2-large", batch_size: int = 16, max_tokens: int = 1024, seed: int = 25) -> None:
        super().__init__(model, batch_size)
        self.max_tokens, self.seed = max_tokens, seed

    def score(self, texts: Texts) -> tuple[float, str]:
        from mauve import compute_mauve

        model = LanguageModel(self.model, self.batch_size, self.max_tokens)
        prefixes = texts.sources or [""] * len(texts.hypotheses)
        human, machine = (
            model.features([f"{prefix} {text}".strip() for prefix, text in zip(prefixes, side, strict=True)]).numpy()
            for side in (texts.references[0], texts.hypotheses)
        )
        result = compute_mauve(p_features=human, q_features=machine, seed=self.seed, verbose=False)
        signature = f"model:{self.model}|max_tokens:{self.max_tokens}|source:included|buckets:{result.num_buckets}"
        return 100 * float(result.mauve), f"{signature}|seed:{self.seed}|percent|mauve-text:{version('mauve-text')}"


class Coherence(PretrainedScorer):
    """Mean over texts of the mean log-likelihood of a token given the source and the preceding tokens."""

    name = "coherence"

    def __init__(self, model: str = "facebook/opt-2.7b", batch_size: int = 4, max_tokens: int = 1024) -> None:
        super().__init__(model, batch_size)
        self.max_tokens = max_tokens

    def score(self, texts: Texts) -> tuple[float, str]:
        model = LanguageModel(self.model, self.batch_size, self.max_tokens)
        scores = model.log_probs(texts.sources or [""] * len(texts.hypotheses), texts.hypotheses)
        means = [score.mean() for score in scores if len(score)]
        if not means:
            raise Skipped("needs a hypothesis that is not empty")
        signature = f"model:{self.model}|nats|mean:texts|empty:left-out"
        return torch.stack(means).mean().item(), signature


class GenerativePerplexity(PretrainedScorer):
    """``exp`` of the mean negative log-likelihood of a token of the hypotheses, without their sources.

    Repetitive text has low values, too; see :class:`~rdm.evaluation.metrics.open_ended.TokenEntropy`.
    """

    name = "generative_perplexity"

    def __init__(self, model: str = "gpt2-large", batch_size: int = 8, max_tokens: int = 1024) -> None:
        super().__init__(model, batch_size)
        self.max_tokens = max_tokens

    def score(self, texts: Texts) -> tuple[float, str]:
        model = LanguageModel(self.model, self.batch_size, self.max_tokens)
        scores = torch.cat(model.log_probs([""] * len(texts.hypotheses), texts.hypotheses))
        if not len(scores):
            raise Skipped("needs a hypothesis that is not empty")
        return scores.mean().neg().exp().item(), f"model:{self.model}|mean:tokens"
