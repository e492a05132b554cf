"""The results store: one JSON object a line, appended, never changed."""

import fcntl
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rdm.errors import UserError, require

Row = dict[str, Any]


def append(file: Path, row: Row) -> None:
    """Add a row. The lock keeps rows of parallel jobs whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def read(places: Iterable[str | Path]) -> list[Row]:
    """The rows of results files, or of all results files below folders, oldest first."""
    rows: list[Row] = []
    for place in map(Path, places):
        require(place.exists(), f"there is no {place}")
        files = sorted(place.rglob("results.jsonl")) if place.is_dir() else [place]
        for file in files:
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise UserError(f"{file}, line {number} is not a result row") from error
    return rows
