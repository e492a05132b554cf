"""The rows that a decoding with a length head fills."""

import torch
from torch import Tensor

from rdm.decoding.sampler import Canvas
from rdm.vocab import Vocab


def length_canvas(vocab: Vocab, lengths: Tensor) -> Canvas:
    """Return ``m`` rows ``<bos> . . . <eos> <pad> ..`` per source with ``lengths [B, m]`` free positions.

    >>> length_canvas(Vocab(size=9), torch.tensor([[1, 2]])).tokens
    tensor([[2, 1, 3, 0],
            [2, 1, 1, 3]])
    """
    columns = torch.arange(int(lengths.max()) + 2, device=lengths.device)
    end = (lengths.flatten() + 1)[:, None]
    tokens = torch.where(columns < end, vocab.mask, vocab.pad)
    tokens = torch.where(columns == end, vocab.eos, tokens)
    tokens[:, 0] = vocab.bos
    return Canvas(tokens, pinned=(columns == 0) | (columns >= end), candidates=lengths.shape[1])
