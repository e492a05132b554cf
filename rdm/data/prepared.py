"""Encoded splits on disk, memory-mapped by every run and every rank."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from rdm.data.corpus import Split, Texts
from rdm.data.ragged import Ragged
from rdm.errors import require
from rdm.hashing import short_hash

CHUNK = 5_000  # texts encoded at a time, and the resolution of the progress bar

Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class Prepared:
    """The columns of a split as ids, and a hash of each example's text."""

    columns: tuple[Ragged, ...]
    hashes: NDArray[np.uint64]  # [examples]

    @classmethod
    def load(cls, folder: Path) -> "Prepared":
        count = json.loads((folder / "columns.json").read_text())
        columns = tuple(Ragged.load(folder / str(column)) for column in range(count))
        return cls(columns, np.load(folder / "hashes.npy", mmap_mode="r"))

    def __len__(self) -> int:
        return len(self.hashes)


def write_split(folder: Path, texts: Texts, encode: Encode, split: Split) -> None:
    """Encode the columns of a split into ``folder`` for :meth:`Prepared.load`."""
    require(len(texts[0]) > 0, f"the {split} split has no text")
    for number, column in enumerate(texts):
        chunks = [
            Ragged.from_rows(encode(column[start : start + CHUNK]))
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
    hashes = (int(short_hash(*example)[:16], 16) for example in zip(*texts, strict=True))
    np.save(folder / "hashes.npy", np.fromiter(hashes, np.uint64, len(texts[0])))
    (folder / "columns.json").write_text(json.dumps(len(texts)))
