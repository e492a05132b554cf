"""What is kept on disk is made once and whole, whatever happens in between."""

import errno
import multiprocessing
import os
import shutil
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest

from rdm.data.cache import build_once
from rdm.data.tokenizer import Tokenizer
from rdm.errors import UserError
from tests.data.helpers import Given, pairs

fork = multiprocessing.get_context("fork")


def visible(folder: Path) -> list[str]:
    """Everything that could be taken for a finished thing; locks and scratch have names with a dot in front."""
    return [file.name for file in folder.iterdir() if not file.name.startswith(".")] if folder.exists() else []


def fill(folder: Path) -> None:
    (folder / "content").write_text("whole")


def test_made_once(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        fill(folder)

    place = tmp_path / "deep" / "down" / "thing"
    for _ in range(3):
        assert build_once(place, make) == place
    assert len(made) == 1
    assert (place / "content").read_text() == "whole"
    assert visible(place.parent) == ["thing"]


def slowly(place: Path, log: Path) -> None:
    def make(folder: Path) -> None:
        with log.open("a") as stream:
            stream.write("made\n")
        time.sleep(0.2)
        fill(folder)

    build_once(place, make)
    assert (place / "content").read_text() == "whole"


def test_processes_at_the_same_time_make_it_once(tmp_path: Path) -> None:
    processes = [fork.Process(target=slowly, args=(tmp_path / "thing", tmp_path / "log")) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 6
    assert (tmp_path / "log").read_text() == "made\n"


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        fill(folder)
        raise UserError("line 3 is bad")

    with pytest.raises(UserError, match=r"^line 3 is bad$"):
        build_once(tmp_path / "thing", fails)
    assert visible(tmp_path) == []
    assert not list(tmp_path.rglob("content"))
    assert (build_once(tmp_path / "thing", fill) / "content").read_text() == "whole"


def half(place: Path, halfway: Event) -> None:
    def make(folder: Path) -> None:
        (folder / "content").write_text("ha")
        (folder / "more").write_text("of the process that was killed")
        halfway.set()
        time.sleep(60)

    build_once(place, make)


def test_a_killed_process_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    """Its lock is gone with it, and the next one starts with an empty folder."""
    halfway = fork.Event()
    process = fork.Process(target=half, args=(tmp_path / "thing", halfway))
    process.start()
    assert halfway.wait(30)
    process.kill()
    process.join(30)
    assert process.exitcode == -9
    assert visible(tmp_path) == []
    place = build_once(tmp_path / "thing", fill)
    assert [file.name for file in place.iterdir()] == ["content"]
    assert (place / "content").read_text() == "whole"
    assert visible(tmp_path) == ["thing"]


def disk_full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FULL = r"prepared data cannot be written to .*: No space left on device; free some space, or .* data\.cache="


@pytest.mark.parametrize(
    ("where", "name"),
    [(np, "save"), (Tokenizer, "save"), (Path, "mkdir"), (os, "fsync"), (os, "replace")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> None:
    """The advice names the folder and the option; nothing half-made stays; with room again it works."""
    corpus = Given((["a b"], ["c d"]))
    with monkeypatch.context() as patch:
        patch.setattr(where, name, disk_full)
        with pytest.raises(UserError, match=FULL):
            pairs(tmp_path, corpus).prepare_data()
    assert visible(tmp_path / "splits") == []
    assert not list(tmp_path.rglob("*.partial"))
    data = pairs(tmp_path, corpus)
    assert data.tokenizer.decode(data.examples("train")[[0]].target.tolist()) == ["c d"]


def test_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file and folder of it; a power cut cannot leave an empty file in something that looks finished."""
    place, events = tmp_path / "thing", []

    def make(folder: Path) -> None:
        (folder / "deep").mkdir()
        fill(folder / "deep")

    def note(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        assert place.exists() == (events[-1] == tmp_path)

    monkeypatch.setattr(os, "fsync", note)
    build_once(place, make)
    scratch = tmp_path / ".thing.partial"
    assert set(events) == {scratch, scratch / "deep", scratch / "deep" / "content", tmp_path}


@pytest.mark.parametrize("content", [b"", b"\0" * 200, None], ids=["empty", "zeros", "missing"])
@pytest.mark.parametrize("name", ["tokenizer.json", "0/ids.npy", "1/offsets.npy", "hashes.npy", "columns.json"])
def test_damaged(name: str, content: bytes | None, tmp_path: Path) -> None:
    """The folder to remove is named, and then all is made again."""
    corpus = Given((["a b"], ["c d"]))
    pairs(tmp_path, corpus).prepare_data()
    (file,) = tmp_path.rglob(name)
    file.write_bytes(content) if content is not None else file.unlink()
    with pytest.raises(UserError, match=r" cannot be read \(\w+\); remove it to have it rebuilt$") as raised:
        pairs(tmp_path, corpus).prepare_data()
    place = Path(str(raised.value).split(" cannot be read")[0])
    assert place in file.parents
    shutil.rmtree(place)
    assert len(pairs(tmp_path, corpus).prepared("train")) == 1


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(UserError, match=r"cannot be written to .*data\.cache="):
        build_once(tmp_path / "cache" / "thing", fill)
