"""Rows of ids of different lengths in one array, and their framing with special symbols."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rdm.vocab import Vocab


@dataclass(frozen=True)
class Ragged:
    """Concatenated rows of ids: row ``i`` is ``ids[offsets[i] : offsets[i + 1]]``."""

    ids: NDArray[np.integer]  # [tokens]
    offsets: NDArray[np.int64]  # [rows + 1]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> "Ragged":
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        return cls(ids, np.concatenate([[0], lengths.cumsum()]))

    @classmethod
    def join(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """Concatenate the rows of several parts."""
        lengths = np.concatenate([part.lengths() for part in parts])
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate([[0], lengths.cumsum()]))

    @classmethod
    def load(cls, folder: Path) -> "Ragged":
        """Memory-map the arrays written by :meth:`save`."""
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("ids", "offsets")))

    def save(self, folder: Path) -> None:
        folder.mkdir()
        np.save(folder / "ids.npy", self.ids)
        np.save(folder / "offsets.npy", self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every row, ``[rows]``."""
        return np.diff(self.offsets)

    def framed(self, rows: NDArray[np.int64], first: int, last: int, fill: int) -> NDArray[np.int64]:
        """Return ``rows [B]`` as ``[B, longest + 2]``: ``first``, the row, ``last``, then ``fill``."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        columns = np.arange(lengths.max(initial=0))
        real = columns < lengths[:, None]
        framed = np.full((len(rows), len(columns) + 2), fill, dtype=np.int64)
        framed[:, 0] = first
        framed[:, 1:-1][real] = self.ids[(starts[:, None] + columns)[real]]
        framed[np.arange(len(rows)), lengths + 1] = last
        return framed


def frame(rows: Ragged, vocab: Vocab, chosen: NDArray[np.int64] | None = None) -> Tensor:
    """Return the ``chosen`` rows (default: all) as ``[B, longest + 2]``: ``<bos> text <eos> <pad> ...``."""
    chosen = np.arange(len(rows)) if chosen is None else chosen
    return torch.from_numpy(rows.framed(chosen, vocab.bos, vocab.eos, vocab.pad))
