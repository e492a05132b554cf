"""Text as ids on disk: encoded once, memory-mapped by every run and every rank."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from rdm.data.cache import digest
from rdm.data.corpus import Split, Texts
from rdm.errors import require

CHUNK = 5_000  # texts encoded at a time: what a progress bar moves by

Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class Ragged:
    """Rows of ids of any length, end to end: row ``i`` is ``ids[offsets[i] : offsets[i + 1]]``."""

    ids: NDArray[np.integer]  # [tokens]
    offsets: NDArray[np.int64]  # [rows + 1]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Ragged":
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        ids = np.fromiter((index for row in rows for index in row), np.int32, int(lengths.sum()))
        return cls(ids, np.concatenate([[0], lengths.cumsum()]))

    @classmethod
    def load(cls, folder: Path) -> "Ragged":
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("ids", "offsets")))

    def save(self, folder: Path) -> None:
        folder.mkdir()
        np.save(folder / "ids.npy", self.ids)
        np.save(folder / "offsets.npy", self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> NDArray[np.int64]:
        """``[rows]``."""
        return np.diff(self.offsets)

    def framed(self, rows: NDArray[np.int64], first: int, last: int, fill: int) -> NDArray[np.int64]:
        """Rows ``[B]`` between ``first`` and ``last``, filled up to the longest: ``[B, longest + 2]``."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        columns = np.arange(lengths.max(initial=0))
        real = columns < lengths[:, None]
        framed = np.full((len(rows), len(columns) + 2), fill, dtype=np.int64)
        framed[:, 0] = first
        framed[:, 1:-1][real] = self.ids[(starts[:, None] + columns)[real]]
        framed[np.arange(len(rows)), lengths + 1] = last
        return framed


@dataclass(frozen=True)
class Prepared:
    """The columns of a split as ids, and a hash of the text of each example."""

    columns: tuple[Ragged, ...]
    hashes: NDArray[np.uint64]  # [examples]

    @classmethod
    def load(cls, folder: Path) -> "Prepared":
        count = json.loads((folder / "columns.json").read_text())
        columns = tuple(Ragged.load(folder / str(column)) for column in range(count))
        return cls(columns, np.load(folder / "hashes.npy", mmap_mode="r"))

    def __len__(self) -> int:
        return len(self.hashes)


def write(folder: Path, texts: Texts, encode: Encode, split: Split) -> None:
    """Encode the columns of a split into ``folder``, for :meth:`Prepared.load`."""
    require(len(texts[0]) > 0, f"the {split} split has no text")
    for number, column in enumerate(texts):
        chunks = [
            Ragged.of(encode(column[start : start + CHUNK]))
            for start in track(
                range(0, len(column), CHUNK),
                f"{split}, column {number + 1} of {len(texts)}",
                console=Console(stderr=True),
                transient=True,
                disable=not sys.stderr.isatty(),
            )
        ]
        lengths = np.concatenate([chunk.lengths() for chunk in chunks])
        ids = np.concatenate([chunk.ids for chunk in chunks])
        Ragged(ids, np.concatenate([[0], lengths.cumsum()])).save(folder / str(number))
    hashes = (int(digest(*example)[:16], 16) for example in zip(*texts, strict=True))
    np.save(folder / "hashes.npy", np.fromiter(hashes, np.uint64, len(texts[0])))
    (folder / "columns.json").write_text(json.dumps(len(texts)))
