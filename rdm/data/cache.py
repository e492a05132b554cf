"""Things that take long to make, made once and kept on disk: whole or not at all."""

import fcntl
import os
import shutil
from collections.abc import Callable
from hashlib import file_digest, sha256
from pathlib import Path

from rdm.errors import UserError


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

    It is filled under another name and renamed at the end, so a process that dies or a full disk leaves nothing that
    looks finished. A lock makes ranks and parallel runs wait for the one that came first.
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
                    os.replace(scratch, place)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"prepared data cannot be written to {place.parent}: {error.strerror or error}; "
            "make room, or name another folder with data.cache=..."
        ) from error
    return place
