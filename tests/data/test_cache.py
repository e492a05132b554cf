"""Cached folders are built once, and are complete or absent."""

import errno
import multiprocessing
import os
import shutil
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from rdm.data.array_file import ArrayFile
from rdm.data.cache import build_once
from rdm.data.tokenizer import Tokenizer
from rdm.errors import UserError
from tests.data.helpers import InMemoryCorpus, pairs

fork = multiprocessing.get_context("fork")


def visible(folder: Path) -> list[str]:
    """Return the entries that look complete; names of locks and scratch folders begin with a dot."""
    return [file.name for file in folder.iterdir() if not file.name.startswith(".")] if folder.exists() else []


def fill(folder: Path) -> None:
    (folder / "content").write_text("whole")


def test_built_once(tmp_path: Path) -> None:
    builds = []

    def build(folder: Path) -> None:
        builds.append(folder)
        fill(folder)

    target = tmp_path / "deep" / "down" / "thing"
    for _ in range(3):
        assert build_once(target, build) == target
    assert len(builds) == 1
    assert (target / "content").read_text() == "whole"
    assert visible(target.parent) == ["thing"]


def build_slowly(target: Path, log: Path) -> None:
    def build(folder: Path) -> None:
        with log.open("a") as stream:
            stream.write("built\n")
        time.sleep(0.2)
        fill(folder)

    build_once(target, build)
    assert (target / "content").read_text() == "whole"


def test_parallel_processes_build_once(tmp_path: Path) -> None:
    processes = [fork.Process(target=build_slowly, args=(tmp_path / "thing", tmp_path / "log")) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 6
    assert (tmp_path / "log").read_text() == "built\n"


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    def build_with_error(folder: Path) -> None:
        fill(folder)
        raise UserError("line 3 is bad")

    with pytest.raises(UserError, match=r"^line 3 is bad$"):
        build_once(tmp_path / "thing", build_with_error)
    assert visible(tmp_path) == []
    assert not list(tmp_path.rglob("content"))
    assert (build_once(tmp_path / "thing", fill) / "content").read_text() == "whole"


def build_half(target: Path, halfway: Event) -> None:
    def build(folder: Path) -> None:
        (folder / "content").write_text("ha")
        (folder / "more").write_text("of the process that was killed")
        halfway.set()
        time.sleep(60)

    build_once(target, build)


def test_a_killed_process_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    """Its lock is released, and the next process starts with an empty folder."""
    halfway = fork.Event()
    process = fork.Process(target=build_half, args=(tmp_path / "thing", halfway))
    process.start()
    assert halfway.wait(30)
    process.kill()
    process.join(30)
    assert process.exitcode == -9
    assert visible(tmp_path) == []
    target = build_once(tmp_path / "thing", fill)
    assert [file.name for file in target.iterdir()] == ["content"]
    assert (target / "content").read_text() == "whole"
    assert visible(tmp_path) == ["thing"]


def disk_full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FULL = r"prepared data cannot be written to .*: No space left on device; free some space, or .* data\.cache="


@pytest.mark.parametrize(
    ("owner", "name"),
    [(ArrayFile, "append"), (Tokenizer, "save"), (Path, "mkdir"), (os, "fsync"), (os, "replace")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_full_disk_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    """The message names the folder and the option; it works once there is space again."""
    corpus = InMemoryCorpus((["a b"], ["c d"]))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, disk_full)
        with pytest.raises(UserError, match=FULL):
            pairs(tmp_path, corpus).prepare_data()
    assert visible(tmp_path / "splits") == []
    assert not list(tmp_path.rglob("*.partial"))
    data = pairs(tmp_path, corpus)
    assert data.codec.decode(data.examples("train")[[0]].target.tolist()) == ["c d"]


def test_files_are_flushed_before_the_folder_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut cannot leave an empty file in a folder that looks complete."""
    target, events = tmp_path / "thing", []

    def build(folder: Path) -> None:
        (folder / "deep").mkdir()
        fill(folder / "deep")

    def note(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        assert target.exists() == (events[-1] == tmp_path)

    monkeypatch.setattr(os, "fsync", note)
    build_once(target, build)
    scratch = tmp_path / ".thing.partial"
    assert set(events) == {scratch, scratch / "deep", scratch / "deep" / "content", tmp_path}


@pytest.mark.parametrize("content", [b"", b"\0" * 200, None], ids=["empty", "zeros", "missing"])
@pytest.mark.parametrize("name", ["tokenizer.json", "0/ids.npy", "1/offsets.npy", "hashes.npy", "columns.json"])
def test_a_damaged_entry_is_reported_and_can_be_rebuilt(name: str, content: bytes | None, tmp_path: Path) -> None:
    """The message names the folder to remove."""
    corpus = InMemoryCorpus((["a b"], ["c d"]))
    pairs(tmp_path, corpus).prepare_data()
    (file,) = tmp_path.rglob(name)
    file.write_bytes(content) if content is not None else file.unlink()
    with pytest.raises(UserError, match=r" cannot be read \(\w+\); remove it to have it rebuilt$") as raised:
        pairs(tmp_path, corpus).prepare_data()
    target = Path(str(raised.value).split(" cannot be read")[0])
    assert target in file.parents
    shutil.rmtree(target)
    assert len(pairs(tmp_path, corpus).prepared("train")) == 1


def test_a_file_in_place_of_the_cache_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(UserError, match=r"cannot be written to .*data\.cache="):
        build_once(tmp_path / "cache" / "thing", fill)
