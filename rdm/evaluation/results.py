"""The results store: JSON Lines files with one row per evaluation; rows are appended and never changed."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rdm.errors import UserError, require
from rdm.locks import lock_exclusive, lock_shared

Row = dict[str, Any]
"""One evaluation: its settings, the metrics, and how they were obtained."""


def append(file: Path, row: Row) -> None:
    """Append ``row`` to ``file``; the file is locked, because parallel jobs may write to it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    with file.open("ab", buffering=0) as stream:
        lock_exclusive(stream)
        end = stream.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[stream.write(line) :]
        except OSError:  # disk full: half a row would make the next one unreadable, too
            stream.truncate(end)
            raise


def read_results(places: Iterable[str | Path]) -> list[Row]:
    """Read result rows, oldest first.

    Args:
        places: results files, or folders that are searched for ``results.jsonl``.
    """
    rows: list[Row] = []
    for place in map(Path, places):
        require(place.exists(), f"{place} does not exist; name run folders, sweep folders or results files")
        files = sorted(place.rglob("results.jsonl")) if place.is_dir() else [place]
        for file in files:
            rows += read_lines(file, "a result row")
    return rows


def find_row(file: Path, evaluation: str) -> Row | None:
    """Return the last row of ``file`` whose ``evaluation`` hash is the given one, or None."""
    rows = read_lines(file, "a result row") if file.exists() else []
    return next((row for row in reversed(rows) if row.get("evaluation") == evaluation), None)


def check_writable(file: Path) -> None:
    """Raise a :class:`UserError` if ``file`` cannot be written; called before long work whose result goes there."""
    parent = next(parent for parent in file.absolute().parents if parent.exists())
    usable = parent.is_dir() and os.access(parent, os.W_OK) and not file.is_dir()
    require(usable, f"{file} cannot be written: {parent} is not a writable folder; name another place")


def read_lines(file: Path, what: str) -> list[Row]:
    """Read one JSON object per line; ``what`` names the expected content in error messages."""
    rows: list[Row] = []
    with file.open("rb") as stream:
        lock_shared(stream)  # another job may be writing
        text = stream.read()
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # neither JSON nor UTF-8 is a ValueError
            raise UserError(f"{file}, line {number} is not {what}") from error
        require(isinstance(row, dict), f"{file}, line {number} is not {what}")
        rows.append(row)
    return rows
