"""Locks between processes."""

import multiprocessing
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from rdm.errors import UserError
from rdm.locks import lock_exclusive, lock_file, lock_folder, lock_shared

fork = multiprocessing.get_context("fork")


def hold_folder(folder: Path, held: Event) -> None:
    with lock_folder(folder):
        held.set()
        time.sleep(60)


def test_a_killed_process_releases_its_folder_lock(tmp_path: Path) -> None:
    held = fork.Event()
    process = fork.Process(target=hold_folder, args=(tmp_path / "run", held))
    process.start()
    assert held.wait(30)
    with pytest.raises(UserError, match="another process is training in"), lock_folder(tmp_path / "run"):
        raise AssertionError
    process.kill()
    process.join(30)
    with lock_folder(tmp_path / "run"):
        pass


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_forked_children_share_the_folder_lock(tmp_path: Path) -> None:
    """A run stays locked as long as one of its ranks lives."""
    with lock_folder(tmp_path):
        child = fork.Process(target=sleep, args=(60,))
        child.start()
    with pytest.raises(UserError, match="another process is training in"), lock_folder(tmp_path):
        raise AssertionError
    child.kill()
    child.join(30)
    with lock_folder(tmp_path):
        pass


def hold_file(path: Path, log: Path, held: Event) -> None:
    with lock_file(path):
        held.set()
        time.sleep(0.3)
        log.write_text("first")


def test_lock_file_waits(tmp_path: Path) -> None:
    held = fork.Event()
    process = fork.Process(target=hold_file, args=(tmp_path / "lock", tmp_path / "log", held))
    process.start()
    assert held.wait(30)
    with lock_file(tmp_path / "lock"):
        assert (tmp_path / "log").read_text() == "first"
    process.join(30)


def append_slowly(path: Path, held: Event) -> None:
    with path.open("ab", buffering=0) as stream:
        lock_exclusive(stream)
        held.set()
        for part in (b"one ", b"row\n"):
            stream.write(part)
            time.sleep(0.2)


def test_readers_wait_for_a_writer_but_not_for_each_other(tmp_path: Path) -> None:
    held = fork.Event()
    process = fork.Process(target=append_slowly, args=(tmp_path / "rows", held))
    process.start()
    assert held.wait(30)
    with (tmp_path / "rows").open("rb") as first, (tmp_path / "rows").open("rb") as second:
        lock_shared(first)
        lock_shared(second)
        assert first.read() == second.read() == b"one row\n"
    process.join(30)
