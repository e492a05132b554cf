"""Checkpoint files are written atomically, verified, and read without running code."""

import errno
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rdm.errors import UserError
from rdm.training.checkpoint_io import AtomicCheckpointIO
from rdm.training.checkpoints import FORMAT, DamagedCheckpointError, load_archive, read_checkpoint
from tests.same import assert_same

OLD = {"format": FORMAT, "weights": torch.zeros(3)}
NEW = {"format": FORMAT, "weights": torch.arange(100_000.0), "plain": {"names": ["a", "b"], "step": 3, "none": None}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with an older checkpoint."""
    file = tmp_path / "checkpoints" / "step.ckpt"
    AtomicCheckpointIO().save_checkpoint(OLD, file)
    return file


def test_round_trip(file: Path) -> None:
    AtomicCheckpointIO().save_checkpoint(NEW, file)
    assert_same(read_checkpoint(file), NEW)
    assert_same(AtomicCheckpointIO().load_checkpoint(file), NEW)
    assert [each.name for each in file.parent.iterdir()] == ["step.ckpt"]


def assert_nothing_changed(file: Path) -> None:
    """The older checkpoint is unchanged, and there are no other files."""
    assert_same(read_checkpoint(file), OLD)
    assert [each.name for each in file.parent.iterdir()] == ["step.ckpt"]


@pytest.mark.parametrize(("module", "name"), [(os, "fsync"), (os, "replace"), (torch, "save"), (Path, "open")])
def test_full_disk_keeps_the_older_checkpoint(
    file: Path, module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        with pytest.raises(
            UserError, match=r"step.ckpt cannot be written: No space left on device; .* free some space"
        ):
            AtomicCheckpointIO().save_checkpoint(NEW, file)
    assert_nothing_changed(file)


@pytest.fixture
def allow() -> Iterator[Callable[[int], None]]:
    """Function that limits the file size, so that a write really fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("size", [1_000, 200_000, 400_500])
def test_failed_write_keeps_the_older_checkpoint(file: Path, size: int, allow: Callable[[int], None]) -> None:
    """At the beginning, in the middle and in the last bytes, where torch raises another error over the OSError."""
    allow(size)
    with pytest.raises(UserError, match="cannot be written: File too large"):
        AtomicCheckpointIO().save_checkpoint(NEW, file)
    assert_nothing_changed(file)


def test_other_errors_are_not_reported_as_a_full_disk(file: Path) -> None:
    with pytest.raises(AttributeError):
        AtomicCheckpointIO().save_checkpoint({"function": lambda: None}, file)
    assert_same(read_checkpoint(file), OLD)


@pytest.mark.parametrize("size", [0, 1, 1_000, 200_000, -1])
def test_truncated_file(file: Path, size: int) -> None:
    AtomicCheckpointIO().save_checkpoint(NEW, file)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(DamagedCheckpointError, match=r"step.ckpt is not a readable checkpoint \(BadZipFile\)"):
        read_checkpoint(file)


def test_flipped_bit_is_detected(file: Path) -> None:
    """Every flipped bit is detected, or lies in bytes that are not read."""
    AtomicCheckpointIO().save_checkpoint({**OLD, "plain": NEW["plain"]}, file)
    whole, expected, detected, chance = file.read_bytes(), read_checkpoint(file), 0, random.Random(0)
    for _ in range(300):
        broken = bytearray(whole)
        broken[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        file.write_bytes(broken)
        try:
            assert_same(read_checkpoint(file), expected)
        except DamagedCheckpointError as error:
            assert str(file) in str(error)  # noqa: PT017
            detected += 1
    assert detected > 150


def test_error_names_the_damaged_record(file: Path) -> None:
    AtomicCheckpointIO().save_checkpoint(NEW, file)
    broken = bytearray(file.read_bytes())
    broken[len(broken) // 2] ^= 1
    file.write_bytes(broken)
    with pytest.raises(DamagedCheckpointError, match=r"step.ckpt is damaged: the checksum of \S+data/0 in it is wrong"):
        read_checkpoint(file)


class Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.victim),)


def test_loading_runs_no_code(file: Path, tmp_path: Path) -> None:
    AtomicCheckpointIO().save_checkpoint({"format": FORMAT, "bomb": Bomb(tmp_path / "boom")}, file)
    for loading in (read_checkpoint, AtomicCheckpointIO().load_checkpoint):
        with pytest.raises(DamagedCheckpointError, match=r"step.ckpt is not a readable checkpoint \(UnpicklingError\)"):
            loading(file)
    assert not (tmp_path / "boom").exists()
    torch.load(file, weights_only=False)
    assert (tmp_path / "boom").exists()  # the payload works


@pytest.mark.parametrize(("content", "found"), [({**OLD, "format": 99}, 99), ({"weights": 1}, None), ([1, 2], None)])
def test_other_formats_are_refused(content: Any, found: int | None, file: Path) -> None:
    """Other format versions, and files that are not checkpoints."""
    AtomicCheckpointIO().save_checkpoint(content, file)
    with pytest.raises(UserError, match=f"has checkpoint format {found}, but this version of rdm reads format 2"):
        read_checkpoint(file)
    assert_same(load_archive(file), content)
