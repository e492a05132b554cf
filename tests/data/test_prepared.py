"""Encoded splits on disk equal direct encoding and are memory-mapped."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.data import module, prepared
from rdm.data.corpus import Texts
from rdm.data.prepared import Encode, Prepared, write_split
from rdm.data.ragged import Ragged
from rdm.errors import UserError
from tests.data.helpers import InMemoryCorpus, pairs

FIRST, LAST, FILL = 101, 102, 100
some_rows = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


@given(rows=some_rows)
@settings(deadline=None, derandomize=True)
def test_rows_are_concatenated(rows: list[list[int]]) -> None:
    ragged = Ragged.from_rows(rows)
    assert len(ragged) == len(rows)
    assert ragged.ids.tolist() == [index for row in rows for index in row]
    assert [ragged.ids[start:end].tolist() for start, end in pairwise(ragged.offsets)] == rows
    assert ragged.lengths().tolist() == [len(row) for row in rows]


@given(rows=some_rows, data=st.data())
@settings(deadline=None, derandomize=True)
def test_framing_equals_a_loop(rows: list[list[int]], data: st.DataObject) -> None:
    """For any selection of rows, also repeated ones or none."""
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6)) if rows else []
    framed = Ragged.from_rows(rows).framed(np.array(chosen, dtype=np.int64), FIRST, LAST, FILL)
    longest = max((len(rows[i]) for i in chosen), default=0)
    expected = [[FIRST, *rows[i], LAST] + [FILL] * (longest - len(rows[i])) for i in chosen]
    assert framed.shape == (len(chosen), longest + 2)
    assert framed.dtype == np.int64
    assert framed.tolist() == expected


@pytest.mark.parametrize("rows", [[[1, 2], [], [3]], [[], []], [[70_000]]])
def test_saved_rows_are_memory_mapped(tmp_path: Path, rows: list[list[int]]) -> None:
    Ragged.from_rows(rows).save(tmp_path / "column")
    loaded = Ragged.load(tmp_path / "column")
    assert isinstance(loaded.ids, np.memmap)
    assert isinstance(loaded.offsets, np.memmap)
    assert not loaded.ids.flags.writeable
    assert [loaded.ids[start:end].tolist() for start, end in pairwise(loaded.offsets)] == rows


def letters(texts: Sequence[str]) -> list[list[int]]:
    """Encode one id per letter."""
    return [[ord(letter) for letter in text] for text in texts]


def write(folder: Path, texts: Texts, encode: Encode = letters) -> Prepared:
    (folder / "split").mkdir(parents=True)
    write_split(folder / "split", folder / "shards", InMemoryCorpus(texts), "train", encode)
    return Prepared.load(folder / "split")


@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 100])
def test_splits_are_encoded_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """The result does not depend on the size of a chunk."""
    monkeypatch.setattr(prepared, "CHUNK", chunk)
    texts = ([f"s{i}" * (i % 3) for i in range(7)], [f"target {i}" for i in range(7)])
    calls: list[int] = []

    def encode(some: Sequence[str]) -> list[list[int]]:
        calls.append(len(some))
        return letters(some)

    loaded = write(tmp_path, texts, encode)
    assert max(calls) <= chunk
    assert len(loaded) == 7
    assert len(loaded.columns) == 2
    for column, text in zip(loaded.columns, texts, strict=True):
        assert [column.ids[start:end].tolist() for start, end in pairwise(column.offsets)] == letters(text)


def test_hashes_distinguish_examples(tmp_path: Path) -> None:
    """Equal texts have equal hashes; moving words to the other side or swapping sides changes them."""
    sources, targets = ["a b", "a", "c", "a b", "c d"], ["c", "b c", "a b", "c", "e"]
    hashes = write(tmp_path, (sources, targets)).hashes.tolist()
    assert hashes[0] == hashes[3]
    assert len(set(hashes)) == 4


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Both sides must be equal; an example that occurs twice in a split is counted twice."""
    monkeypatch.setattr(module, "OVERLAP_CHUNK", chunk)
    train = (["a", "b", "c", "c"], ["x", "y", "z", "z"])
    corpus = InMemoryCorpus(train, valid=(["b", "a", "a", "q"], ["y", "x", "x", "z"]), test=(["a", "c"], ["y", "x"]))
    data = pairs(tmp_path, corpus)
    assert data.overlap("valid") == 3
    assert data.overlap("test") == 0
    assert data.overlap("train", "valid") == 2
    assert data.overlap("train", "train") == 4


def test_a_split_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the train split has no text"):
        write(tmp_path, ([],))
