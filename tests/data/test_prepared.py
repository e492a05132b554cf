"""Rows of ids on disk are those of direct encoding, in order, and mapped rather than read."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.data import prepared
from rdm.data.prepared import Prepared, write_split
from rdm.data.ragged import Ragged
from rdm.errors import UserError
from tests.data.helpers import Given, pairs

FIRST, LAST, FILL = 101, 102, 100
some_rows = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


@given(rows=some_rows)
@settings(deadline=None, derandomize=True)
def test_rows_end_to_end(rows: list[list[int]]) -> None:
    ragged = Ragged.of(rows)
    assert len(ragged) == len(rows)
    assert ragged.ids.tolist() == [index for row in rows for index in row]
    assert [ragged.ids[start:end].tolist() for start, end in pairwise(ragged.offsets)] == rows
    assert ragged.lengths().tolist() == [len(row) for row in rows]


@given(rows=some_rows, data=st.data())
@settings(deadline=None, derandomize=True)
def test_framed_like_a_loop(rows: list[list[int]], data: st.DataObject) -> None:
    """Any choice of rows, in any order, also the same one twice, also none."""
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6)) if rows else []
    framed = Ragged.of(rows).framed(np.array(chosen, dtype=np.int64), FIRST, LAST, FILL)
    longest = max((len(rows[i]) for i in chosen), default=0)
    expected = [[FIRST, *rows[i], LAST] + [FILL] * (longest - len(rows[i])) for i in chosen]
    assert framed.shape == (len(chosen), longest + 2)
    assert framed.dtype == np.int64
    assert framed.tolist() == expected


@pytest.mark.parametrize("rows", [[[1, 2], [], [3]], [[], []], [[70_000]]])
def test_saved_and_mapped(tmp_path: Path, rows: list[list[int]]) -> None:
    Ragged.of(rows).save(tmp_path / "column")
    loaded = Ragged.load(tmp_path / "column")
    assert isinstance(loaded.ids, np.memmap)
    assert isinstance(loaded.offsets, np.memmap)
    assert not loaded.ids.flags.writeable
    assert [loaded.ids[start:end].tolist() for start, end in pairwise(loaded.offsets)] == rows


def letters(texts: list[str]) -> list[list[int]]:
    """A tokenizer that a reader can follow: an id a letter."""
    return [[ord(letter) for letter in text] for text in texts]


@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 100])
def test_written_like_encoded_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Whatever the size of a chunk, and whether or not the last is full."""
    monkeypatch.setattr(prepared, "CHUNK", chunk)
    texts = ([f"s{i}" * (i % 3) for i in range(7)], [f"target {i}" for i in range(7)])
    calls: list[int] = []

    def encode(some: list[str]) -> list[list[int]]:
        calls.append(len(some))
        return letters(some)

    write_split(tmp_path, texts, encode, "train")
    assert max(calls) <= chunk
    loaded = Prepared.load(tmp_path)
    assert len(loaded) == 7
    assert len(loaded.columns) == 2
    for column, text in zip(loaded.columns, texts, strict=True):
        assert [column.ids[start:end].tolist() for start, end in pairwise(column.offsets)] == letters(text)


def test_hashes_tell_examples_apart(tmp_path: Path) -> None:
    """Same text, same hash; neither a moved border between the sides nor swapped sides are the same text."""
    sources, targets = ["a b", "a", "c", "a b", "c d"], ["c", "b c", "a b", "c", "e"]
    write_split(tmp_path, (sources, targets), letters, "train")
    hashes = Prepared.load(tmp_path).hashes.tolist()
    assert hashes[0] == hashes[3]
    assert len(set(hashes)) == 4


def test_overlap(tmp_path: Path) -> None:
    """Both sides must be the same; an example that stands twice in a split is counted twice."""
    train = (["a", "b", "c", "c"], ["x", "y", "z", "z"])
    corpus = Given(train, valid=(["b", "a", "a", "q"], ["y", "x", "x", "z"]), test=(["a", "c"], ["y", "x"]))
    data = pairs(tmp_path, corpus)
    assert data.overlap("valid") == 3
    assert data.overlap("test") == 0
    assert data.overlap("train", "valid") == 2
    assert data.overlap("train", "train") == 4


def test_a_split_without_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the train split has no text"):
        write_split(tmp_path, ([],), letters, "train")
