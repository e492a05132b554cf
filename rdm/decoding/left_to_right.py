"""Writing one token after the other: how an autoregressive language model continues a text."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from rdm.decoding.base import Decoding
from rdm.decoding.proposal import Proposal
from rdm.decoding.sampler import Decoded
from rdm.decoding.trace import GrowingText
from rdm.describe import in_words
from rdm.errors import require
from rdm.vocab import Vocab


class Reader(Protocol):
    """A network that remembers what it has read."""

    def __call__(self, tokens: Tensor) -> Tensor:
        """Read the next ``tokens [R, n]`` of every row; the logits ``[R, V]`` of what follows."""

    def keep(self, rows: Tensor) -> None:
        """Go on with these ``rows [R]`` (bool) only."""


class LeftToRight(Decoding):
    """A decoding strategy with no model in it: each token is drawn given those before it.

    Args:
        name: as it appears in results.
        max_tokens: most tokens to write.
        temperature, top_p: see :class:`~rdm.decoding.proposal.Proposal`.
    """

    def __init__(self, name: str, max_tokens: int = 128, temperature: float = 1.0, top_p: float = 0.95) -> None:
        require(max_tokens >= 1, f"decoding.max_tokens must be at least 1, got {max_tokens}")
        self.name = name
        self.max_tokens = max_tokens
        self.proposal = Proposal(temperature, top_p=top_p)

    def __str__(self) -> str:
        return f"{self.name}, up to {self.max_tokens} tokens"

    def trace(self) -> GrowingText:
        return GrowingText()

    def describe(self) -> dict[str, Any]:
        return {
            "strategy": self.name,
            "steps": None,
            "most_tokens": self.max_tokens,
            "proposal": in_words(self.proposal),
        }

    @torch.inference_mode()
    def run(
        self,
        reader: Reader,
        prompt: Tensor,
        count: int,
        vocab: Vocab,
        generator: torch.Generator | None = None,
        observer: Callable[[Tensor, Tensor], None] | None = None,
    ) -> Decoded:
        """Up to ``count`` tokens after each ``prompt [B, S]``; a row that has written ``<eos>`` is computed no further.

        The observer is shown the continuations and their log-probabilities ``[B, count]`` before the first token and
        after each.

        Returns:
            ``[B, count]`` tokens, padded after ``<eos>``, and the mean log-probability of those written, ``[B]``.
        """
        written = prompt.new_full((len(prompt), count), vocab.pad)
        scores = torch.zeros(written.shape, device=prompt.device)
        everyone = torch.arange(len(prompt), device=prompt.device)
        rows, new = everyone, prompt
        if observer is not None:
            observer(written.clone(), scores.clone())
        for column in range(count):
            tokens, log_probs = self.proposal(reader(new), generator=generator)
            written[rows, column], scores[rows, column] = tokens, log_probs
            if observer is not None:
                observer(written.clone(), scores.clone())
            goes_on = tokens != vocab.eos
            if not goes_on.all():
                rows, tokens = rows[goes_on], tokens[goes_on]
                if len(rows) == 0:
                    break
                reader.keep(goes_on)
            new = tokens[:, None]
        return Decoded(written, scores.sum(1) / (written != vocab.pad).sum(1), rows=everyone)
