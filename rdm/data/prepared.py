"""Encoded splits on disk, memory-mapped by every run and every rank.

A split is encoded in shards of bounded size, so memory does not depend on the size of the corpus. The finished shards
of a large split are kept in files until all of them are joined: a process that was killed loses one shard.
"""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rdm.data.array_file import ArrayFile
from rdm.data.corpus import Corpus, Example, Split
from rdm.data.ragged import Ragged
from rdm.data.reports import report_progress
from rdm.data.text_parts import CHUNK_CHARACTERS, cut
from rdm.errors import require
from rdm.files import atomic_write
from rdm.hashing import short_hash

CHUNK = 5_000  # examples encoded at a time
SHARD = 100_000  # examples
SHARD_CHARACTERS = 8 * 10**6

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

    @classmethod
    def encode(cls, examples: Sequence[Example], encode: Encode) -> "Prepared":
        """Encode a chunk of examples, in memory."""
        columns = tuple(Ragged.from_rows(encode(column)) for column in zip(*examples, strict=True))
        hashes = (int(short_hash(*example)[:16], 16) for example in examples)
        return cls(columns, np.fromiter(hashes, np.uint64, len(examples)))

    @classmethod
    def join(cls, parts: Sequence["Prepared"]) -> "Prepared":
        """Concatenate examples, in memory."""
        columns = zip(*(part.columns for part in parts), strict=True)
        return cls(tuple(map(Ragged.join, columns)), np.concatenate([part.hashes for part in parts]))

    def save_shard(self, file: Path) -> None:
        """Write one file for :meth:`load_shard`, atomically."""
        arrays = {f"ids{number}": column.ids for number, column in enumerate(self.columns)}
        arrays |= {f"offsets{number}": column.offsets for number, column in enumerate(self.columns)}
        with atomic_write(file) as stream:
            np.savez(stream, hashes=self.hashes, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load_shard(cls, file: Path) -> "Prepared":
        with np.load(file) as arrays:
            columns = range((len(arrays.files) - 1) // 2)
            rows = tuple(Ragged(arrays[f"ids{number}"], arrays[f"offsets{number}"]) for number in columns)
            return cls(rows, arrays["hashes"])


def write_split(folder: Path, shards: Path, corpus: Corpus, split: Split, encode: Encode) -> None:
    """Encode a split into ``folder`` for :meth:`Prepared.load`; ``shards`` holds the finished shards of a large one.

    The content depends on text and encoding alone, not on the number of threads nor on what ``shards`` held before.
    """
    parts = cut(corpus.stream(split), lambda example: sum(map(len, example)), SHARD, SHARD_CHARACTERS)
    first, second = next(parts, []), next(parts, [])
    require(len(first) > 0, f"the {split} split has no text")
    if second:
        # The total is counted first, for the report. An error in the text is found before anything is encoded.
        files = _write_shards(shards, chain([first, second], parts), split, corpus.count(split), encode)
        _join_shards(folder, map(Prepared.load_shard, files))
    else:
        _join_shards(folder, [_encode_shard(first, encode)])


def _write_shards(
    folder: Path, shards: Iterable[list[Example]], split: Split, total: int, encode: Encode
) -> list[Path]:
    """Encode those shards that ``folder`` does not have yet, and return the files of all."""
    folder.mkdir(exist_ok=True)
    files = []
    if found := len(list(folder.glob("[0-9]*.npz"))):
        print(f"{split}: going on after {found} finished shards", file=sys.stderr)
    with report_progress(f"encoding {split}", total) as advance:
        for number, examples in enumerate(shards):
            file = folder / f"{number:06d}.npz"
            missing = not file.exists()
            if missing:
                _encode_shard(examples, encode).save_shard(file)
            advance(len(examples), missing)
            files.append(file)
    return files


def _encode_shard(examples: Sequence[Example], encode: Encode) -> Prepared:
    chunks = cut(examples, lambda example: sum(map(len, example)), CHUNK, CHUNK_CHARACTERS)
    return Prepared.join(list(_encode_ahead(chunks, encode)))


def _encode_ahead(chunks: Iterable[list[Example]], encode: Encode) -> Iterator[Prepared]:
    """Encode chunks in two threads: while the tokenizer's threads work on one, Python converts another."""
    with ThreadPoolExecutor(2) as threads:
        pending: deque[Future[Prepared]] = deque()
        for chunk in chunks:
            pending.append(threads.submit(Prepared.encode, chunk, encode))
            if len(pending) > 2:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _join_shards(folder: Path, shards: Iterable[Prepared]) -> None:
    """Write the arrays of all shards, one after another, as the arrays of the split."""
    remaining = iter(shards)
    first = next(remaining)
    with ExitStack() as stack:

        def new_array(name: str, dtype: type[np.generic]) -> ArrayFile:
            return stack.enter_context(ArrayFile(folder / name, dtype))

        columns = []
        for number in range(len(first.columns)):
            (folder / str(number)).mkdir()
            columns.append((new_array(f"{number}/ids.npy", np.int32), new_array(f"{number}/offsets.npy", np.int64)))
            columns[-1][1].append(np.zeros(1, np.int64))
        hashes = new_array("hashes.npy", np.uint64)
        for shard in chain([first], remaining):
            hashes.append(shard.hashes)
            for rows, (ids, offsets) in zip(shard.columns, columns, strict=True):
                offsets.append(len(ids) + rows.offsets[1:])
                ids.append(rows.ids)
    (folder / "columns.json").write_text(json.dumps(len(columns)))
