"""Denoisers that are run on some positions only while a text is decoded; the others keep their keys and values.

The networks are bidirectional, so this is an approximation: a position that is not computed again does not react to
tokens that changed elsewhere, nor to the new step. It is exact if the network has one layer and no time embedding.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.models.cache import KeyValueCache, Part
from rdm.models.denoiser import Denoiser
from rdm.models.encoder_decoder import Memory
from rdm.models.layers import Positions


class CachedDenoiser(ABC):
    """A denoiser bound to encoded sources, with the keys and values of earlier calls. Rows must stay the same.

    Args:
        denoiser: the network.
        memory: the encoded sources; None for a network without encoder.
    """

    def __init__(self, denoiser: Denoiser, memory: Memory | None) -> None:
        self.denoiser, self.memory = denoiser, memory
        self.cache = KeyValueCache()

    @abstractmethod
    def changed(self, x_t: Tensor, positions: Tensor) -> Tensor | None:
        """Return where the network has to be run, ``[R, N]`` bool, at least at ``positions``; None means everywhere."""

    def __call__(self, x_t: Tensor, t: Tensor, positions: Positions) -> Tensor:
        assert isinstance(positions, Tensor)
        if not positions.any():
            return torch.zeros(0, self.denoiser.network.vocab.size, device=x_t.device)
        changed = self.changed(x_t, positions)
        if changed is None:
            self.cache, changed = KeyValueCache(), torch.ones_like(positions)
        return self.denoiser.forward_part(x_t, t, self.memory, positions, self.cache, Part.of(changed))


class BlockCache(CachedDenoiser):
    """Recomputes only the current block; all positions in its first call (the dual cache of Fast-dLLM).

    Args:
        denoiser, memory: see :class:`CachedDenoiser`.
        size: positions per block.
        first: the first position of the first block.
    """

    def __init__(self, denoiser: Denoiser, memory: Memory | None, size: int, first: int) -> None:
        super().__init__(denoiser, memory)
        self.size, self.first = size, first
        self.block = -1

    def changed(self, x_t: Tensor, positions: Tensor) -> Tensor | None:
        block = (torch.arange(x_t.shape[1], device=x_t.device) - self.first).div(self.size, rounding_mode="floor")
        asked = block[positions.any(0)]
        first, last = int(asked[0]), int(asked[-1])
        if first == last == self.block:
            return (block == self.block).expand_as(x_t)
        # With blanks in the middle of a template, rows have their blocks in different places: never cached.
        self.block = first if first == last else -1
        return None


class TokenCache(CachedDenoiser):
    """Recomputes noisy and changed tokens in every call, and all others only sometimes (after dKV-Cache).

    Args:
        denoiser, memory: see :class:`CachedDenoiser`.
        refresh: all positions are computed in every ``refresh``-th call; 1 is no cache.
    """

    def __init__(self, denoiser: Denoiser, memory: Memory | None, refresh: int) -> None:
        super().__init__(denoiser, memory)
        self.refresh, self.calls = refresh, 0
        self.seen: Tensor | None = None  # the tokens whose keys and values are cached

    def changed(self, x_t: Tensor, positions: Tensor) -> Tensor | None:
        seen, self.seen = self.seen, x_t
        self.calls += 1
        if seen is None or (self.calls - 1) % self.refresh == 0:
            return None
        return positions | (x_t != seen)
