"""Files that are there whole or not at all, and folders in which one process works at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rdm.errors import UserError


@contextmanager
def replacing(file: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes ``file`` once it is complete and on the disk; until then ``file`` is as it was."""
    scratch = file.with_name(f".{file.name}.partial")
    try:
        with scratch.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(scratch, file)
    finally:
        scratch.unlink(missing_ok=True)
    sync(file.parent)


def write(file: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(file) as stream:
        stream.write(text.encode())


def sync(place: Path) -> None:
    """What is in a file, and the names in a folder, survive a power cut only after this."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def point(link: Path, file: Path) -> None:
    """Let ``link`` name ``file``, which lies beside it; at any moment it names the old or the new one."""
    scratch = link.with_name(f".{link.name}.partial")
    scratch.unlink(missing_ok=True)
    scratch.symlink_to(file.name)
    os.replace(scratch, link)
    sync(link.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of ``folder``. The lock goes with the process, however it ends, and its children."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another process is training in {folder}; wait for it, or name another folder") from error
        yield
