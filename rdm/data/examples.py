"""Splits as map-style datasets whose index is a list of examples, so that a batch is built at once."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from rdm.data.batch import Batch
from rdm.data.ragged import Ragged, frame
from rdm.vocab import Vocab

ROWS = 10_000  # examples whose ids are read at a time


class Examples(Dataset[Batch], ABC):
    """The examples of a split; ``examples[[3, 1, 4]]`` is a batch of three."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, indices: Sequence[int]) -> Batch: ...

    @abstractmethod
    def lengths(self) -> Tensor:
        """Return source and target lengths ``[examples, 2]``, with framing and padding to a multiple."""

    @abstractmethod
    def target_ids(self) -> Iterator[NDArray[np.integer]]:
        """Yield the ids of all targets, those of many targets at a time."""


class Pairs(Examples):
    """Sources and targets, framed with ``<bos>`` and ``<eos>``.

    Args:
        vocab: the special symbols.
        sources, targets: aligned rows of ids without special symbols.
        rows: the rows that belong to the split.
        multiple: batches are padded to a multiple of this many tokens. Fewer shapes mean fewer compiled kernels.
        widest: batches are not padded beyond this width.
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
        self.vocab, self.sources, self.targets, self.rows = vocab, sources, targets, rows
        self.multiple, self.widest = multiple, widest

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        rows = self.rows[np.asarray(indices)]
        source, target = (self._pad(frame(side, self.vocab, rows)) for side in (self.sources, self.targets))
        return Batch(source, target, torch.as_tensor(indices))

    def _width(self, length: Any) -> Any:
        """Return the width of a batch whose longest row has ``length`` tokens (an integer or an array)."""
        return np.maximum(length, np.minimum(-(-length // self.multiple) * self.multiple, self.widest))

    def _pad(self, tokens: Tensor) -> Tensor:
        missing = int(self._width(tokens.shape[1])) - tokens.shape[1]
        return functional.pad(tokens, (0, missing), value=self.vocab.pad)

    def lengths(self) -> Tensor:
        columns = [column.lengths()[self.rows] + 2 for column in (self.sources, self.targets)]
        return torch.from_numpy(self._width(np.stack(columns, 1)))

    def target_ids(self) -> Iterator[NDArray[np.integer]]:
        ordered = np.sort(self.rows)
        for start in range(0, len(self), ROWS):
            rows = ordered[start : start + ROWS]
            first, last = rows[0], rows[-1] + 1
            within = np.zeros(last - first, dtype=bool)
            within[rows - first] = True
            offsets = self.targets.offsets[first : last + 1]
            yield self.targets.ids[offsets[0] : offsets[-1]][np.repeat(within, np.diff(offsets))]


class Windows(Examples):
    """Windows ``[examples, N]`` of packed text; the source is an empty prefix."""

    def __init__(self, windows: NDArray[np.integer]) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        target = torch.from_numpy(self.windows[np.asarray(indices)].astype(np.int64))
        return Batch(target[:, :0], target, torch.as_tensor(indices))

    def lengths(self) -> Tensor:
        return torch.tensor([0, self.windows.shape[1]]).expand(len(self), 2)

    def target_ids(self) -> Iterator[NDArray[np.integer]]:
        for start in range(0, len(self), ROWS):
            yield self.windows[start : start + ROWS].reshape(-1)
