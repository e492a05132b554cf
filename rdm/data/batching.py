"""Batches: sentences of like length together, a budget of tokens, every rank its own share.

The order of an epoch follows from the seed and the epoch alone, so that it is the same for any number of workers,
and can be known before a single sentence is read.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler

from rdm.data.prepared import Ragged
from rdm.errors import require
from rdm.vocab import Vocab


@dataclass
class Batch:
    """``B`` examples, padded.

    The source is what is given: a sentence of its own, or, in open-ended text, how the target begins
    (``target[:, :S] == source``; ``S = 0`` where nothing is given). What is given is neither noised nor learned.

    ``counts`` holds what losses are divided by, each a scalar tensor: the ``sentences``, target ``tokens``
    (everything but padding), ``next`` tokens (those with another before them: not ``<bos>``) and ``ordinary`` ones
    (no specials at all). In a training batch they are those of the whole optimiser step on this rank, see
    :class:`StepLoader`; else those of the batch.
    """

    source: Tensor  # [B, S] <bos> text <eos>, or a prefix of the target
    target: Tensor  # [B, N] <bos> text <eos>, or N tokens of packed text
    ids: Tensor  # [B] index of each example in its split
    counts: dict[str, Tensor] = field(default_factory=dict)

    def pin_memory(self) -> "Batch":
        """The same in memory a GPU copies from without waiting; called by the loader."""
        counts = {name: count.pin_memory() for name, count in self.counts.items()}
        return Batch(self.source.pin_memory(), self.target.pin_memory(), self.ids.pin_memory(), counts)


def counts_of(learned: Tensor, vocab: Vocab) -> dict[str, Tensor]:
    """The :attr:`Batch.counts` of target tokens ``[B, N]``."""
    real = learned != vocab.pad
    return {
        "sentences": torch.tensor(len(learned)),
        "tokens": real.sum(),
        "next": (real & (learned != vocab.bos)).sum(),
        "ordinary": vocab.is_ordinary(learned).sum(),
    }


class Examples(Dataset[Batch], ABC):
    """A split. An index is the list of examples that make up a batch, so that a batch is built in one go."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, indices: Sequence[int]) -> Batch: ...

    @abstractmethod
    def lengths(self) -> Tensor:
        """``[examples, 2]``: tokens of source and target, as they stand in a batch of one."""

    @abstractmethod
    def target_ids(self) -> NDArray[np.integer]:
        """All ids of all targets, in one row."""

    def batch(self, indices: Sequence[int], source: Tensor, target: Tensor, given: int = 0) -> Batch:
        """A batch with its counts; the first ``given`` columns of the target are not learned."""
        return Batch(source, target, torch.as_tensor(indices), counts=counts_of(target[:, given:], self.vocab))


class Pairs(Examples):
    """Sources and targets; ``rows`` are those of them that make up the split.

    Batches are padded to a multiple of ``multiple`` tokens, but never beyond ``widest``: few shapes mean few kernels to
    compile, and shapes that GPUs like.
    """

    def __init__(
        self,
        vocab: Vocab,
        sources: Ragged,
        targets: Ragged,
        rows: NDArray[np.int64],
        multiple: int = 1,
        widest: int = 2**31,
    ) -> None:
        super().__init__(vocab)
        self.sources, self.targets, self.rows = sources, targets, rows
        self.multiple, self.widest = multiple, widest

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        rows = self.rows[np.asarray(indices)]
        source, target = (self._widen(frame(side, self.vocab, rows)) for side in (self.sources, self.targets))
        return self.batch(indices, source, target)

    def _width(self, length: Any) -> Any:
        """That of a batch whose longest row has ``length`` tokens."""
        return np.maximum(length, np.minimum(-(-length // self.multiple) * self.multiple, self.widest))

    def _widen(self, tokens: Tensor) -> Tensor:
        missing = int(self._width(tokens.shape[1])) - tokens.shape[1]
        return functional.pad(tokens, (0, missing), value=self.vocab.pad)

    def lengths(self) -> Tensor:
        columns = [column.lengths()[self.rows] + 2 for column in (self.sources, self.targets)]
        return torch.from_numpy(self._width(np.stack(columns, 1)))

    def target_ids(self) -> NDArray[np.integer]:
        within = np.zeros(len(self.targets), dtype=bool)
        within[self.rows] = True
        return self.targets.ids[np.repeat(within, self.targets.lengths())]


class Windows(Examples):
    """Packed text, cut into windows; the first ``given`` tokens of each are its source."""

    def __init__(self, vocab: Vocab, windows: NDArray[np.integer], given: int = 0) -> None:
        super().__init__(vocab)
        self.windows, self.given = windows, given

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        target = torch.from_numpy(self.windows[np.asarray(indices)].astype(np.int64))
        return self.batch(indices, target[:, : self.given], target, self.given)

    def lengths(self) -> Tensor:
        return torch.tensor([self.given, self.windows.shape[1]]).expand(len(self), 2)

    def target_ids(self) -> NDArray[np.integer]:
        return self.windows.reshape(-1)


def frame(rows: Ragged, vocab: Vocab, chosen: NDArray[np.int64] | None = None) -> Tensor:
    """The chosen rows (or all) as ``[B, longest + 2]``: ``<bos> text <eos> <pad> ...``."""
    chosen = np.arange(len(rows)) if chosen is None else chosen
    return torch.from_numpy(rows.framed(chosen, vocab.bos, vocab.eos, vocab.pad))


class LengthBatches(Sampler[list[int]]):
    """Lists of indices: like lengths together, within a budget of padded tokens or sentences, spread over ranks.

    Args:
        lengths: ``[examples, 2]`` source and target lengths.
        max_tokens, max_sentences: None for no limit; at least one is needed.
        shuffle: draw a new order every epoch (training); otherwise one fixed order, longest first.
        rank, world_size: when shuffling, this rank takes every ``world_size``-th batch, and the first batches are
            repeated until all ranks make the same number of steps; otherwise it takes every ``world_size``-th
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
        require(max_tokens is not None or max_sentences is not None, "give data.max_tokens or data.max_sentences")
        require(max_tokens is None or max_tokens >= 1, f"data.max_tokens must be at least 1, got {max_tokens}")
        require(
            max_sentences is None or max_sentences >= 1, f"data.max_sentences must be at least 1, got {max_sentences}"
        )
        self.max_tokens, self.max_sentences = max_tokens or 2**62, max_sentences or 2**62
        self.lengths = lengths
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        self.start = 0  # batches of the epoch to skip
        self.rank, self.world_size = rank, world_size
        longest = int(lengths.max()) if len(lengths) else 0
        require(
            longest <= self.max_tokens,
            f"the longest sentence has {longest} tokens, more than data.max_tokens={max_tokens}, "
            "or the share of it that a batch gets where there are several devices or accumulated batches",
        )

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this before each epoch."""
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
        # Stable sorts by source, then target length: equal lengths keep the (shuffled) order from above. Sources run
        # down for one target length and up for the next, so that a batch with two target lengths has like sources.
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


class StepLoader:
    """Gives every training batch the counts of the whole optimiser step it belongs to (on this rank).

    A loss divided by the tokens of its own micro-batch depends on how the step was cut up. To divide by those of
    the whole step, the loader looks ahead over the ``accumulate`` batches of a step before it hands out the first.
    """

    def __init__(self, loader: DataLoader[Batch], accumulate: int) -> None:
        self.loader, self.accumulate = loader, accumulate
        # Batches of this epoch so far: saved with a checkpoint, so that a resumed run goes on with the next one.
        self.handed_out = self.resumed_at = 0
        # Called when the next step is asked for: all there is to do about the one before has been done.
        self.between_steps: Callable[[], None] = lambda: None

    def state_dict(self) -> dict[str, int]:
        return {"handed_out": self.handed_out}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.resumed_at = state["handed_out"] % len(self)

    @property
    def sampler(self) -> "LengthBatches":
        """Lightning calls ``set_epoch`` on a loader's ``sampler``."""
        return self.loader.sampler  # type: ignore[return-value]

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        self.sampler.start, self.handed_out, self.resumed_at = self.resumed_at, self.resumed_at, 0
        batches = iter(self.loader)
        while step := list(islice(batches, self.accumulate)):
            self.between_steps()
            for batch in with_step_counts(step):
                self.handed_out += 1
                yield batch


def with_step_counts(step: list[Batch]) -> list[Batch]:
    """The micro-batches of one optimiser step, each with the counts of all of them."""
    totals = {name: sum((batch.counts[name] for batch in step), torch.tensor(0)) for name in step[0].counts}
    for batch in step:
        batch.counts = totals
    return step
