"""Files are there whole or not at all; a folder has one process at work."""

import multiprocessing
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from rdm.errors import UserError
from rdm.files import locked, point, replacing, write

fork = multiprocessing.get_context("fork")


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write(file, "old")

    def fail() -> None:
        with replacing(file) as stream:
            stream.write(b"ne")
            stream.flush()
            assert file.read_text() == "old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    write(file, "new")
    assert file.read_text() == "new"


def test_a_link_is_moved(tmp_path: Path) -> None:
    """Over what was left by a process that was killed, too."""
    link = tmp_path / "last"
    (tmp_path / ".last.partial").write_text("left behind")
    for name in ("one", "two"):
        write(tmp_path / name, name)
        point(link, tmp_path / name)
        assert link.read_text() == name
    assert sorted(file.name for file in tmp_path.iterdir()) == ["last", "one", "two"]


def hold(folder: Path, held: Event) -> None:
    with locked(folder):
        held.set()
        time.sleep(60)


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    held = fork.Event()
    process = fork.Process(target=hold, args=(tmp_path / "run", held))
    process.start()
    assert held.wait(30)
    with pytest.raises(UserError, match="another process is training in"), locked(tmp_path / "run"):
        raise AssertionError
    process.kill()
    process.join(30)
    with locked(tmp_path / "run"):
        pass
