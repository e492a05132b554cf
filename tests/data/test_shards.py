"""Large splits are encoded in shards: same files for any shards and threads, after a kill, and in bounded memory."""

import io
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest

from rdm.data import prepared, reports
from rdm.data.corpus import AlignedText
from rdm.data.module import TextDataModule
from rdm.data.prepared import Prepared, write_split
from rdm.data.tokenizer import Tokenizer, Words
from rdm.errors import UserError
from tests.data.helpers import InMemoryCorpus, pairs

COUNT = 40
TEXTS = ([f"a{i} " * (i % 4) for i in range(COUNT)], [f"b{i} c{i // 2}" for i in range(COUNT)])
fork = multiprocessing.get_context("fork")


def letters(texts: Sequence[str]) -> list[list[int]]:
    """Encode one id per letter."""
    return [[ord(letter) for letter in text] for text in texts]


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def write(folder: Path) -> dict[str, bytes]:
    """Write the split ``TEXTS`` and return its files."""
    (folder / "split").mkdir(parents=True)
    write_split(folder / "split", folder / "shards", InMemoryCorpus(TEXTS), "train", letters)
    return content(folder / "split")


@pytest.mark.parametrize(("examples", "characters"), [(1, 10**6), (7, 10**6), (COUNT - 1, 10**6), (COUNT, 50)])
def test_files_do_not_depend_on_the_size_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int, characters: int
) -> None:
    whole = write(tmp_path / "whole")
    assert not (tmp_path / "whole" / "shards").exists()
    monkeypatch.setattr(prepared, "SHARD", examples)
    monkeypatch.setattr(prepared, "SHARD_CHARACTERS", characters)
    monkeypatch.setattr(prepared, "CHUNK", 3)
    assert write(tmp_path / "parts") == whole
    assert len(list((tmp_path / "parts" / "shards").iterdir())) > 1
    loaded = Prepared.load(tmp_path / "parts" / "split")
    for column, texts in zip(loaded.columns, TEXTS, strict=True):
        assert isinstance(column.ids, np.memmap)
        rows = [column.ids[start:end].tolist() for start, end in zip(column.offsets, column.offsets[1:], strict=False)]
        assert rows == letters(texts)


def files_of(cache: Path) -> dict[str, bytes]:
    """Prepare the training split and return the files of all splits."""
    module(cache).prepared("train")
    return content(cache / "splits")


def module(cache: Path) -> TextDataModule:
    return pairs(cache, InMemoryCorpus(TEXTS))


def test_files_do_not_depend_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TOKENIZERS_PARALLELISM`` turns the threads of the tokenizer off and on."""
    monkeypatch.setattr(prepared, "SHARD", 10)
    monkeypatch.setattr(prepared, "CHUNK", 4)
    found = []
    for parallel in ("false", "true"):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
        found.append(files_of(tmp_path / parallel))
    assert found[0] == found[1]
    assert any(name.endswith("0/ids.npy") for name in found[0])


def stop_in_third_shard(cache: Path, reached: Event) -> None:
    encode, calls = Tokenizer.encode, 0

    def slow(self: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        nonlocal calls
        calls += 1
        if calls > 4:  # two columns in each of the shards
            reached.set()
            time.sleep(60)
        return encode(self, texts)

    Tokenizer.encode = slow  # type: ignore[method-assign]
    module(cache).prepared("train")


def test_a_killed_process_loses_one_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next one encodes the others alone, and the files are those of an untouched run."""
    monkeypatch.setattr(prepared, "SHARD", 10)
    expected = files_of(tmp_path / "untouched")
    cache, reached = tmp_path / "killed", fork.Event()
    process = fork.Process(target=stop_in_third_shard, args=(cache, reached))
    process.start()
    assert reached.wait(30)
    process.kill()
    process.join(30)
    assert process.exitcode == -9
    (shards,) = cache.rglob("*.shards")
    assert sorted(file.name for file in shards.glob("[0-9]*")) == ["000000.npz", "000001.npz"]
    assert not list(cache.rglob("hashes.npy"))
    encode, encoded = Tokenizer.encode, []

    def note(self: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        encoded.extend(texts)
        return encode(self, texts)

    monkeypatch.setattr(Tokenizer, "encode", note)
    capsys.readouterr()
    assert files_of(cache) == expected
    assert sorted(encoded) == sorted(TEXTS[0][20:] + TEXTS[1][20:])
    assert "train: going on after 2 finished shards" in capsys.readouterr().err
    assert not list(cache.rglob("*.shards")) + list(cache.rglob("*.partial"))


def prepare_as_rank(cache: Path, log: Path) -> None:
    save = Prepared.save_shard

    def noted(self: Prepared, file: Path) -> None:
        with log.open("a") as stream:
            stream.write(f"{file.name}\n")
        save(self, file)

    Prepared.save_shard = noted  # type: ignore[method-assign]
    assert len(module(cache).prepared("train")) == COUNT


def test_eight_ranks_at_once_encode_every_shard_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "SHARD", 10)
    ranks = [fork.Process(target=prepare_as_rank, args=(tmp_path / "cache", tmp_path / "log")) for _ in range(8)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0] * 8
    assert (tmp_path / "log").read_text().splitlines() == [f"00000{number}.npz" for number in range(4)]


def test_an_interrupted_process_keeps_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C; an error removes them, because the same text would give the same error."""
    monkeypatch.setattr(prepared, "SHARD", 10)
    for error, kept in ((KeyboardInterrupt(), 1), (UserError("bad"), 0)):
        save, saved = Prepared.save_shard, []

        def save_one(self: Prepared, file: Path, save=save, saved=saved, error=error) -> None:  # type: ignore[no-untyped-def]
            if saved:
                raise error
            saved.append(file)
            save(self, file)

        with monkeypatch.context() as patch:
            patch.setattr(Prepared, "save_shard", save_one)
            with pytest.raises(type(error)):
                module(tmp_path).prepared("train")
        assert len(list(tmp_path.rglob("*.npz"))) == kept


def test_an_error_at_the_end_of_the_text_is_found_before_anything_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "SHARD", 10)
    (tmp_path / "train.de").write_text("a\n" * COUNT)
    (tmp_path / "train.en").write_text("a\n" * (COUNT + 3))
    data = pairs(tmp_path / "cache", AlignedText(str(tmp_path), "de", "en"))
    data.use_codec(data.make_codec(Words()(["a"])))
    monkeypatch.setattr(Tokenizer, "encode", None)
    with pytest.raises(UserError, match=r"train\.de has 40 lines, but .*train\.en has 43: the lines must be aligned"):
        data.prepared("train")
    assert all(name.endswith(".lock") for name in content(tmp_path / "cache"))


# Reports.


def test_progress_without_a_terminal_is_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small data are silent."""
    monkeypatch.setattr(reports, "SECONDS_BETWEEN_LINES", 0.0)
    write(tmp_path / "small")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(prepared, "SHARD", 30)
    write(tmp_path / "large")
    first, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"encoding train: 30 of 40 examples, [\d,]+/s, \d+ s left", first)
    assert re.fullmatch(r"encoding train: 40 of 40 examples, [\d,]+/s, 0 s left", last)


def test_progress_on_a_terminal_is_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(prepared, "SHARD", 30)
    monkeypatch.setenv("TERM", "xterm")
    write(tmp_path)
    assert "encoding train" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "40/40" in sys.stderr.getvalue()  # type: ignore[attr-defined]


# Sizes and threads that take long.

PREPARE = """
import resource, sys
from pathlib import Path
from rdm.data.corpus import AlignedText
from tests.data.helpers import pairs

folder = Path(sys.argv[1])
pairs(Path(sys.argv[2]), AlignedText(str(folder), "en", "de")).prepared("train")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def prepare_in_process(text: Path, cache: Path, threads: int) -> int:
    """Prepare text in another process and return its peak memory in MB."""
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", PREPARE, str(text), str(cache)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """Four times the text, both in several shards: a split in one shard holds one less in memory."""
    rng = np.random.default_rng(0)
    peaks = []
    for count in (120_000, 480_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        for side in ("en", "de"):
            with (folder / f"train.{side}").open("w") as stream:
                for _ in range(count // 10_000):
                    words = rng.zipf(1.3, (10_000, 20)) % 5000
                    stream.write("\n".join(" ".join(f"w{word}" for word in row) for row in words) + "\n")
        peaks.append(prepare_in_process(folder, tmp_path / f"cache{count}", threads=1))
    assert peaks[1] - peaks[0] < 40
    prepare_in_process(tmp_path / "120000", tmp_path / "threads", threads=4)
    assert content(tmp_path / "threads") == content(tmp_path / "cache120000")
