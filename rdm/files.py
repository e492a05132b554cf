"""Atomic writes: a crash, a full disk or a power cut leaves the old or the new content."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(file: Path) -> Iterator[IO[bytes]]:
    """Open a stream whose content replaces ``file`` when the block ends without an exception."""
    scratch = file.with_name(f".{file.name}.partial")
    try:
        with scratch.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(scratch, file)
    finally:
        scratch.unlink(missing_ok=True)
    fsync_path(file.parent)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Make a folder that becomes ``folder``, which must be empty or new, when the block ends without an exception."""
    target = folder.absolute()
    scratch = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        scratch.mkdir(parents=True)
        yield scratch
        for path in (*scratch.rglob("*"), scratch):
            fsync_path(path)
        os.replace(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    fsync_path(target.parent)


def write_text(file: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_write(file) as stream:
        stream.write(text.encode())


def replace_symlink(link: Path, file: Path) -> None:
    """Make ``link`` point to ``file`` in the same folder, atomically."""
    scratch = link.with_name(f".{link.name}.partial")
    scratch.unlink(missing_ok=True)
    scratch.symlink_to(file.name)
    os.replace(scratch, link)
    fsync_path(link.parent)


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
