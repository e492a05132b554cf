"""The batch sampler: sentences of similar length together, within a budget, partitioned over ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
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
    def batches(self) -> "Batches":
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
        ends = fill_batches(self.lengths[order].max(1).values.numpy(), self.max_tokens, self.max_sentences)
        numbers = np.arange(len(ends))
        if self.shuffle:
            numbers = torch.randperm(len(ends), generator=generator).numpy()
            numbers = np.resize(numbers, len(numbers) + -len(numbers) % self.world_size)  # repeats the first ones
            numbers = numbers[self.rank :: self.world_size]
        return Batches(order.numpy(), ends, numbers)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches[self.start :])

    def __len__(self) -> int:
        return len(self.batches)


@dataclass(frozen=True)
class Batches(Sequence[list[int]]):
    """Batches as lists of examples, created lazily, because millions of integer objects need much memory.

    >>> list(Batches(np.array([5, 6, 7, 8]), ends=np.array([1, 4]), numbers=np.array([1, 0])))
    [[6, 7, 8], [5]]
    """

    order: NDArray[np.int64]  # [examples]
    ends: NDArray[np.int64]  # [batches] where each batch ends in ``order``
    numbers: NDArray[np.int64]  # the batches of this sequence

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...

    @overload
    def __getitem__(self, index: slice) -> "Batches": ...

    def __getitem__(self, index: int | slice) -> "list[int] | Batches":
        if isinstance(index, slice):
            return Batches(self.order, self.ends, self.numbers[index])
        number = self.numbers[index]
        start = self.ends[number - 1] if number else 0
        return self.order[start : self.ends[number]].tolist()


def fill_batches(lengths: NDArray[np.int64], max_tokens: int, max_sentences: int) -> NDArray[np.int64]:
    """Return where batches of consecutive sentences end, each of which is as large as the limits allow.

    >>> fill_batches(np.array([4, 4, 5, 2, 2, 2]), max_tokens=10, max_sentences=3).tolist()
    [2, 4, 6]
    """
    ends = []
    end = 0
    while end < len(lengths):
        most = min(max_sentences, max_tokens // max(int(lengths[end]), 1))
        longest = np.maximum.accumulate(lengths[end : end + most])
        padded = longest * np.arange(1, len(longest) + 1)
        end += int(padded.searchsorted(max_tokens, side="right"))
        ends.append(end)
    return np.array(ends, dtype=np.int64)
