"""File locks between processes.

All of them are ``flock`` locks. The kernel releases such a lock when the last process that holds the open file exits,
however it exits, and forked children share the lock of their parent.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rdm.errors import UserError


def lock_exclusive(stream: IO[bytes]) -> None:
    """Wait for the exclusive lock on an open file; closing the file releases it."""
    fcntl.flock(stream, fcntl.LOCK_EX)


def lock_shared(stream: IO[bytes]) -> None:
    """Wait for a shared lock on an open file, i.e. until no process holds its exclusive lock."""
    fcntl.flock(stream, fcntl.LOCK_SH)


def lock_or_refuse(stream: IO[bytes], message: str) -> None:
    """Take the exclusive lock on an open file; raise :class:`UserError` with ``message`` if it is taken."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(message) from error


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the exclusive lock on ``path``, waiting for it; the file is created and stays."""
    with path.open("wb") as stream:
        lock_exclusive(stream)
        yield


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder (its file ``.lock``); raise :class:`UserError` if it is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("wb") as stream:
        lock_or_refuse(stream, f"another process is training in {folder}; wait for it, or name another folder")
        yield
