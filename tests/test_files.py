"""Atomic writes."""

from pathlib import Path

import pytest

from rdm.files import atomic_write, replace_symlink, write_text


def test_an_exception_leaves_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_text(file, "old")

    def fail() -> None:
        with atomic_write(file) as stream:
            stream.write(b"ne")
            stream.flush()
            assert file.read_text() == "old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    write_text(file, "new")
    assert file.read_text() == "new"


def test_symlink_is_replaced_despite_a_leftover_scratch_file(tmp_path: Path) -> None:
    link = tmp_path / "last"
    (tmp_path / ".last.partial").write_text("of a process that was killed")
    for name in ("one", "two"):
        write_text(tmp_path / name, name)
        replace_symlink(link, tmp_path / name)
        assert link.read_text() == name
    assert sorted(file.name for file in tmp_path.iterdir()) == ["last", "one", "two"]
