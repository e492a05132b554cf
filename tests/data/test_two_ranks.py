"""Two ranks that start from an empty cache partition the data and prepare it once."""

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

Seen = dict[str, list[list[int]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.data.two_ranks", str(folder)]
    done = subprocess.run(command, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def notes(folder: Path) -> list[dict[str, Any]]:
    notes = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert notes[0]["pid"] != notes[1]["pid"]
    return notes


@pytest.mark.parametrize("epoch", ["0", "1"])
def test_training_batches_are_partitioned(notes: list[dict[str, Any]], epoch: str) -> None:
    """Ranks have equally many batches; at most one batch is repeated; every example is in one of them."""
    first, second = (note["seen"][epoch] for note in notes)
    assert len(first) == len(second) > 5
    batches = [tuple(batch) for batch in [*first, *second]]
    assert len(batches) - len(set(batches)) <= 1
    assert sorted(chain(*set(batches))) == list(range(101))


def test_epochs_differ(notes: list[dict[str, Any]]) -> None:
    for note in notes:
        assert note["seen"]["0"] != note["seen"]["1"]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_evaluation_examples_are_partitioned_without_repetition(notes: list[dict[str, Any]], split: str) -> None:
    first, second = (list(chain(*note["seen"][split])) for note in notes)
    assert sorted(first + second) == list(range(31))
    assert abs(len(first) - len(second)) <= 1


def test_prepared_once(folder: Path, notes: list[dict[str, Any]]) -> None:
    """Each split is read by one process, the training split twice: for the tokenizer and to encode it."""
    reads = [line.split() for line in (folder / "log").read_text().splitlines()]
    assert sorted(split for _, split in reads) == ["test", "train", "train", "valid"]
    assert {int(pid) for pid, split in reads if split != "test"} == {notes[0]["pid"]}
    for kind, count in (("tokenizers", 1), ("splits", 3)):
        made = [file for file in (folder / "cache" / kind).iterdir() if not file.name.startswith(".")]
        assert len(made) == count
    assert not list((folder / "cache").rglob("*.partial"))
