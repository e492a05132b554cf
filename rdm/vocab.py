"""The vocabulary as the rest of the code sees it: a size and the ids of the special symbols."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Vocab:
    """Size and special ids, shared by tokenizer, noise, denoiser and decoding.

    *Special* ids stand for no piece of text (``<pad> <mask> <bos> <eos> <unk>``); every other id is *ordinary*.
    """

    size: int
    pad: int = 0
    mask: int = 1
    bos: int = 2
    eos: int = 3
    unk: int = 4

    @property
    def specials(self) -> tuple[int, ...]:
        return (self.pad, self.mask, self.bos, self.eos, self.unk)

    def select(self, *, without: tuple[int, ...]) -> Tensor:
        """Boolean table ``[V]``, true for every id that is not in ``without``."""
        table = torch.ones(self.size, dtype=torch.bool)
        table[list(without)] = False
        return table

    def is_ordinary(self, tokens: Tensor) -> Tensor:
        """True where ``tokens`` (any shape) is not a special id."""
        ordinary = torch.ones_like(tokens, dtype=torch.bool)
        for special in self.specials:
            ordinary &= tokens != special
        return ordinary
