"""Things that take long to make, made once and kept on disk: whole or not at all."""

import fcntl
import os
import shutil
from collections.abc import Callable
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TypeVar

from rdm.errors import UserError
from rdm.files import sync

Content = TypeVar("Content")


def digest(*parts: str) -> str:
    """A short name for everything in ``parts``."""
    return sha256("\0".join(parts).encode()).hexdigest()[:20]


def file_hash(file: Path) -> str:
    """A hash of the content of a file."""
    try:
        with file.open("rb") as stream:
            return file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error}") from error


def once(place: Path, make: Callable[[Path], None]) -> Path:
    """``place``, a folder filled by ``make`` if it is not there yet.

    It is filled under another name and renamed once it is on the disk, so a process that dies, a full disk or a power
    cut leaves nothing that looks finished. A lock makes ranks and parallel runs wait for the one that came first.
    """
    if place.exists():
        return place
    scratch = place.with_name(f".{place.name}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_name(f".{place.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
                scratch.mkdir()
                try:
                    make(scratch)
                    for made in (*scratch.rglob("*"), scratch):
                        sync(made)
                    os.replace(scratch, place)
                    sync(place.parent)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"prepared data cannot be written to {place.parent}: {error.strerror or error}; "
            "make room, or name another folder with data.cache=..."
        ) from error
    return place


def read_back(place: Path, load: Callable[[Path], Content]) -> Content:
    """What ``load`` makes of a folder of :func:`once`."""
    try:
        return load(place)
    except Exception as error:  # there is no end to what a damaged file can raise
        raise UserError(f"{place} cannot be read ({type(error).__name__}); remove it, and it is made again") from error
