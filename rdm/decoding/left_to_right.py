"""Left-to-right sampling for autoregressive language models."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from rdm.decoding.base import Decoding
from rdm.decoding.proposal import Proposal
from rdm.decoding.sampler import Decoded
from rdm.decoding.trace import GrowingText
from rdm.errors import require
from rdm.vocab import Vocab


class Reader(Protocol):
    """A network with a cache of the tokens it has read."""

    def __call__(self, tokens: Tensor) -> Tensor:
        """Read the next ``tokens [R, n]`` of every row and return the logits ``[R, V]`` of the token after them."""

    def keep(self, rows: Tensor) -> None:
        """Continue with these ``rows [R]`` (bool) only."""


class LeftToRight(Decoding):
    """Samples each token given all tokens before it.

    Args:
        name: name of the strategy in result rows.
        max_tokens: maximum number of tokens to generate.
        temperature, top_p: see :class:`~rdm.decoding.proposal.Proposal`.

    >>> print(LeftToRight("left_to_right", max_tokens=64))
    left_to_right, up to 64 tokens
    """

    steps = None

    def __init__(self, name: str, max_tokens: int = 128, temperature: float = 1.0, top_p: float = 0.95) -> None:
        require(max_tokens >= 1, f"decoding.max_tokens must be at least 1, got {max_tokens}")
        self.name = name
        self.max_tokens = max_tokens
        self.proposal = Proposal(temperature, top_p=top_p)

    @property
    def candidates(self) -> int:
        return 1

    def __str__(self) -> str:
        return f"{self.name}, up to {self.max_tokens} tokens"

    def trace(self) -> GrowingText:
        return GrowingText()

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
        """Generate up to ``count`` tokens after each ``prompt [B, S]``; rows leave the computation after ``<eos>``.

        The observer is called with the continuations and their log-probabilities ``[B, count]`` before the first token
        and after each.

        Returns:
            Tokens ``[B, count]``, padded after ``<eos>``; scores are the mean log-probability of the generated tokens.
        """
        written = prompt.new_full((len(prompt), count), vocab.pad)
        scores = torch.zeros(written.shape, device=prompt.device)
        all_rows = torch.arange(len(prompt), device=prompt.device)
        rows, new, calls = all_rows, prompt, torch.zeros_like(all_rows)
        if observer is not None:
            observer(written.clone(), scores.clone())
        for column in range(count):
            tokens, log_probs = self.proposal(reader(new), generator=generator)
            written[rows, column], scores[rows, column] = tokens, log_probs
            calls[rows] += 1
            if observer is not None:
                observer(written.clone(), scores.clone())
            unfinished = tokens != vocab.eos
            if not unfinished.all():
                rows, tokens = rows[unfinished], tokens[unfinished]
                if len(rows) == 0:
                    break
                reader.keep(unfinished)
            new = tokens[:, None]
        return Decoded(written, scores.sum(1) / (written != vocab.pad).sum(1), rows=all_rows, calls=calls)
