"""Shared by the language models: checking prompts and truncating continuations."""

from torch import Tensor

from rdm.errors import require
from rdm.vocab import Vocab


def check_prompt(source: Tensor, vocab: Vocab, max_length: int) -> None:
    """Raise unless prompts ``[B, S]`` have the same length and leave room for at least one more token."""
    length = source.shape[1]
    require(length < max_length, f"the prompt has {length} tokens; at most {max_length - 1} leave room to continue")
    require(not bool((source == vocab.pad).any()), "prompts that are continued together must have the same length")


def truncate(tokens: Tensor, vocab: Vocab, max_tokens: int) -> Tensor:
    """Truncate continuations ``[B, N]`` to ``max_tokens``, and at the first ``<eos>`` (by padding)."""
    tokens = tokens[:, :max_tokens]
    return tokens.masked_fill((tokens == vocab.eos).cumsum(1) > 0, vocab.pad)
