"""Cached keys and values while a block is decoded."""

import torch
from torch import Tensor

from rdm.models.denoiser import Denoiser
from rdm.models.encoder_decoder import Memory
from rdm.models.layers import KeyValueCache, Positions


class BlockCache:
    """A denoiser bound to encoded sources that recomputes only the current block (the dual cache of Fast-dLLM).

    The first call of a block runs the network on all positions and keeps the keys and values of every layer. Later
    calls run it on the positions of the block only, and all others are seen as they were in the first call.

    The networks are bidirectional, so this is an approximation: positions outside the block do not react to tokens
    that change inside, nor to the new step. It is exact in the first call of every block, and in all calls if the
    network has one layer and no time embedding.

    Args:
        denoiser: the network.
        memory: the encoded sources; None for a network without encoder.
        size: positions per block.
        first: the first position of the first block.
    """

    def __init__(self, denoiser: Denoiser, memory: Memory | None, size: int, first: int) -> None:
        self.denoiser, self.memory, self.size, self.first = denoiser, memory, size, first
        self.block, self.cache = -1, KeyValueCache()

    def __call__(self, x_t: Tensor, t: Tensor, positions: Positions) -> Tensor:
        assert isinstance(positions, Tensor)
        columns = positions.any(0).nonzero()[:, 0]
        if len(columns) == 0:
            return torch.zeros(0, self.denoiser.network.vocab.size, device=x_t.device)
        blocks = (columns[[0, -1]] - self.first).div(self.size, rounding_mode="floor").tolist()
        if blocks[0] != blocks[1] or blocks[0] != self.block:
            # With blanks in the middle of a template, rows have their blocks in different places: never cached.
            self.block, self.cache = (blocks[0] if blocks[0] == blocks[1] else -1), KeyValueCache()
            return self.denoiser.forward_part(x_t, t, self.memory, positions, self.cache, 0, x_t.shape[1])
        start = self.first + self.block * self.size
        return self.denoiser.forward_part(x_t, t, self.memory, positions, self.cache, start, start + self.size)
