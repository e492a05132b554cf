"""Earlier import path of :class:`Batch`, :func:`frame` and the counts."""

import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.data.examples import Pairs
from rdm.data.ragged import frame
from rdm.vocab import Vocab

__all__ = ["Batch", "Pairs", "counts_of", "frame"]


def counts_of(learned: Tensor, vocab: Vocab) -> dict[str, Tensor]:
    """Return the counts of target tokens ``[B, N]`` by unit; belongs to the systems."""
    real = learned != vocab.pad
    return {
        "sentences": torch.tensor(len(learned)),
        "tokens": real.sum(),
        "next": (real & (learned != vocab.bos)).sum(),
        "ordinary": vocab.is_ordinary(learned).sum(),
    }
