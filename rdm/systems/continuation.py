"""What the language models share: a prompt that can be continued, and where a continuation ends."""

from torch import Tensor

from rdm.errors import require
from rdm.vocab import Vocab


def check_prompt(source: Tensor, vocab: Vocab, max_length: int) -> None:
    """Prompts ``[B, S]`` are of one length, with room for at least one more token."""
    given = source.shape[1]
    require(given < max_length, f"the prompt has {given} tokens; at most {max_length - 1} leave room to continue")
    require(not bool((source == vocab.pad).any()), "prompts that are continued together must have the same length")


def cut(tokens: Tensor, vocab: Vocab, max_tokens: int) -> Tensor:
    """Continuations ``[B, N]``, no longer than ``max_tokens``; the first ``<eos>`` and all behind it become padding."""
    tokens = tokens[:, :max_tokens]
    return tokens.masked_fill((tokens == vocab.eos).cumsum(1) > 0, vocab.pad)
