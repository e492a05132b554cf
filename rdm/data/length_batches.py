"""The batch sampler: sentences of similar length together, within a budget, partitioned over ranks."""

from collections.abc import Iterator
from functools import cached_property
from itertools import cycle, islice

import torch
from torch import Tensor
from torch.utils.data import Sampler

from rdm.errors import require


class LengthBatches(Sampler[list[int]]):
    """Sample batches of similar length within a budget of padded tokens or sentences.

    The order of an epoch depends on the seed and the epoch alone, so it is the same for any number of workers.

    Args:
        lengths: ``[examples, 2]`` source and target lengths.
        max_tokens, max_sentences: None for no limit; at least one is needed.
        shuffle: draw a new order every epoch (training); otherwise one fixed order, longest first.
        rank, world_size: when shuffling, this rank takes every ``world_size``-th batch, and the first batches are
            repeated until all ranks have the same number of steps; otherwise it takes every ``world_size``-th
            sentence, each once.
    """

    def __init__(
        self,
        lengths: Tensor,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        require(max_tokens is not None or max_sentences is not None, "set data.max_tokens or data.max_sentences")
        require(max_tokens is None or max_tokens >= 1, f"data.max_tokens must be at least 1, got {max_tokens}")
        require(
            max_sentences is None or max_sentences >= 1, f"data.max_sentences must be at least 1, got {max_sentences}"
        )
        self.max_tokens, self.max_sentences = max_tokens or 2**62, max_sentences or 2**62
        self.lengths = lengths
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        self.start = 0  # number of batches of the epoch to skip
        self.rank, self.world_size = rank, world_size
        longest = int(lengths.max()) if len(lengths) else 0
        require(
            longest <= self.max_tokens,
            f"the longest sentence has {longest} tokens, more than the {max_tokens} of a batch "
            "(data.max_tokens divided by devices and accumulated batches)",
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; Lightning calls this before each one."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.__dict__.pop("batches", None)

    @cached_property
    def batches(self) -> list[list[int]]:
        """The batches of this rank in this epoch."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = (
            torch.randperm(len(self.lengths), generator=generator) if self.shuffle else torch.arange(len(self.lengths))
        )
        # Stable sorts by source, then target length: equal lengths keep the (shuffled) order from above. Sources are
        # descending for even target lengths and ascending for odd ones, so that a batch with two target lengths has
        # similar sources.
        source, target = self.lengths[order].unbind(1)
        order = order[torch.where(target % 2 == 0, source, -source).argsort(descending=True, stable=True)]
        order = order[self.lengths[order, 1].argsort(descending=True, stable=True)]
        if not self.shuffle:
            order = order[self.rank :: self.world_size]
        batches: list[list[int]] = []
        longest = 0
        for index, length in zip(order.tolist(), self.lengths[order].max(1).values.tolist(), strict=True):
            longest = max(longest, length)
            full = batches and (len(batches[-1]) + 1) * longest > self.max_tokens
            if not batches or full or len(batches[-1]) >= self.max_sentences:
                batches.append([])
                longest = length
            batches[-1].append(index)
        if self.shuffle:
            batches = [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
            batches += list(islice(cycle(batches), -len(batches) % self.world_size))
            batches = batches[self.rank :: self.world_size]
        return batches

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches[self.start :])

    def __len__(self) -> int:
        return len(self.batches)
