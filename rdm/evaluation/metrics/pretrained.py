"""Metrics that ask a pretrained model: from a local folder, the cache or the hub; without it they are skipped.

They need the ``metrics`` extra. Nothing here waits for a hub that cannot be reached, and nothing makes a run fail.
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
    """Whether the hub answers within seconds; its own client would try again for half a minute."""
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


def locate(model: str) -> str:
    """What to load ``model`` from: a folder, or its name where the hub can be asked. Raises :class:`OSError`."""
    if Path(model).is_dir():
        return model
    if model.startswith((".", "/", "~")):
        raise FileNotFoundError(model)
    if hub_reachable():
        return model
    from huggingface_hub import snapshot_download

    return snapshot_download(model, local_files_only=True)


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class NeedsModel(Scorer):
    """A scorer with a pretrained model.

    Args:
        model: a name on the hub, or a folder.
        batch_size: texts at once.
    """

    def __init__(self, model: str, batch_size: int = 16) -> None:
        self.model, self.batch_size = model, batch_size

    def measure(self, texts: Texts) -> Metric:
        try:
            return super().measure(texts)
        except ImportError:
            reason = f"needs {self.model} and the metrics extra (pip install -e '.[metrics]')"
        except OSError:  # what transformers and the hub raise without a network, a ConnectionError included
            reason = f"needs {self.model}"
        except Exception as error:  # another kind of model, a damaged file, too little memory
            told = str(error).partition("\n")[0]
            reason = f"needs {self.model} in working order ({type(error).__name__}: {told})"
        return Metric(self.name, None, skipped=reason)


class BertScore(NeedsModel):
    """Mean BERTScore F1; 0 to 1. ``num_layers`` is the layer to compare at: 40 goes with the default model."""

    name = "bertscore"

    def __init__(
        self, model: str = "microsoft/deberta-xlarge-mnli", num_layers: int = 40, batch_size: int = 16
    ) -> None:
        super().__init__(model, batch_size)
        self.num_layers = num_layers

    def score(self, texts: Texts) -> tuple[float, str]:
        from bert_score import BERTScorer

        scorer = BERTScorer(
            model_type=locate(self.model), num_layers=self.num_layers, batch_size=self.batch_size, device=device()
        )
        # The model's own limit, not the placeholder of 10^30 that some tokenizers carry and fast ones cannot take.
        scorer._tokenizer.model_max_length = min(scorer._tokenizer.model_max_length, 512)
        # An empty hypothesis scores 0, as bert-score says itself; but it cannot read one with every tokenizer.
        pairs = [
            (text, group) for text, *group in zip(texts.hypotheses, *texts.references, strict=True) if text.strip()
        ]
        if not pairs:
            raise Skipped("needs a hypothesis that is not empty")
        _, _, f1 = scorer.score([text for text, _ in pairs], [group for _, group in pairs])
        signature = f"model:{self.model}|layer:{self.num_layers}|nrefs:{len(texts.references)}|idf:no|rescaled:no"
        return f1.sum().item() / len(texts.hypotheses), f"{signature}|bert-score:{version('bert-score')}"


class LanguageModel:
    """A causal language model that scores text."""

    def __init__(self, model: str, batch_size: int, max_tokens: int) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        place = locate(model)
        self.tokenizer = AutoTokenizer.from_pretrained(place)
        self.model = AutoModelForCausalLM.from_pretrained(place).to(device()).eval()
        self.batch_size, self.max_tokens = batch_size, max_tokens

    def ids(self, text: str, special: bool) -> list[int]:
        return self.tokenizer(text, add_special_tokens=special).input_ids

    @torch.inference_mode()
    def _run(self, rows: Sequence[list[int]]) -> Iterator[tuple[list[int], Any, int]]:
        """Every row of ids with the model's output for its batch and its place there."""
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            padded = pad_sequence([torch.tensor(row) for row in batch], batch_first=True).to(device())
            lengths = torch.tensor([len(row) for row in batch], device=padded.device)
            mask = (torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]).long()
            output = self.model(input_ids=padded, attention_mask=mask, output_hidden_states=True)
            yield from ((row, output, index) for index, row in enumerate(batch))

    def log_probs(self, prefixes: Sequence[str], texts: Sequence[str]) -> list[Tensor]:
        """For every text the log-probability of each of its tokens after its prefix (or the start symbol)."""
        start = self.tokenizer.bos_token_id
        if start is None:
            start = self.tokenizer.eos_token_id
        contexts = [self.ids(prefix, special=True) or [start] for prefix in prefixes]
        # A text that continues something starts with a space, like any word inside a sentence.
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
        """``[texts, D]``: the last hidden state of the last token of each, which are those MAUVE compares."""
        rows = [self.ids(text, special=True)[: self.max_tokens] or [self.tokenizer.eos_token_id] for text in texts]
        return torch.stack([o.hidden_states[-1][i, len(row) - 1].float().cpu() for row, o, i in self._run(rows)])


class Mauve(NeedsModel):
    """MAUVE of the hypotheses, each behind its source, against the first references; percent."""

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


class Coherence(NeedsModel):
    """Mean over texts of the mean log-likelihood of a token given the source and the tokens before it."""

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


class GenerativePerplexity(NeedsModel):
    """``exp`` of the mean negative log-likelihood of a token, of the hypotheses alone. Read it with the entropy."""

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
