"""Folders that take long to build: built once, complete or absent."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rdm.errors import UserError
from rdm.files import fsync_path
from rdm.locks import lock_file

Content = TypeVar("Content")


def build_once(folder: Path, build: Callable[[Path], None], parts: Path | None = None) -> Path:
    """Return ``folder``, filled by ``build`` unless it exists.

    ``build`` fills a scratch folder, which is renamed after it has been flushed to the disk. So a killed process, a
    full disk or a power cut leave nothing that looks complete. A lock makes other ranks and parallel runs wait.

    Args:
        parts: a folder where ``build`` keeps finished parts of its work. It survives if the process is killed or
            interrupted, and is removed when ``folder`` is complete or ``build`` raises an error.
    """
    if folder.exists():
        return folder
    scratch = folder.with_name(f".{folder.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock_file(folder.with_name(f".{folder.name}.lock")):
            if not folder.exists():
                remove_tree(scratch)  # left by a process that was killed
                scratch.mkdir()
                try:
                    build(scratch)
                    for path in (*scratch.rglob("*"), scratch):
                        fsync_path(path)
                    os.replace(scratch, folder)
                    fsync_path(folder.parent)
                except Exception:
                    remove_tree(parts)
                    raise
                finally:
                    remove_tree(scratch)
                remove_tree(parts)
    except OSError as error:
        raise UserError(
            f"prepared data cannot be written to {folder.parent}: {error.strerror or error}; "
            "free some space, or choose another folder with data.cache=..."
        ) from error
    return folder


def remove_tree(folder: Path | None) -> None:
    """Remove a folder if it exists."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def load_cached(folder: Path, load: Callable[[Path], Content]) -> Content:
    """Return ``load(folder)`` for a folder of :func:`build_once`; any exception means that it is damaged."""
    try:
        return load(folder)
    except Exception as error:  # a damaged file can raise anything
        raise UserError(f"{folder} cannot be read ({type(error).__name__}); remove it to have it rebuilt") from error
