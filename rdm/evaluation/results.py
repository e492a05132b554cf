"""The results store: one JSON object a line, appended, never changed."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rdm.errors import UserError, require
from rdm.evaluation.decode import Outputs
from rdm.hashing import settings_hash
from rdm.locks import lock_exclusive, lock_shared

Row = dict[str, Any]
fingerprint = settings_hash


def append(file: Path, row: Row) -> None:
    """Add a row. The lock keeps rows of parallel jobs whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    with file.open("ab", buffering=0) as stream:
        lock_exclusive(stream)
        end = stream.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[stream.write(line) :]
        except OSError:  # the disk is full: half a row would spoil the next one, too
            stream.truncate(end)
            raise


def read(places: Iterable[str | Path]) -> list[Row]:
    """The rows of results files, or of all results files below folders, oldest first."""
    rows: list[Row] = []
    for place in map(Path, places):
        require(place.exists(), f"there is no {place}")
        files = sorted(place.rglob("results.jsonl")) if place.is_dir() else [place]
        for file in files:
            rows += read_lines(file, "a result row")
    return rows


def find(file: Path, evaluation: str) -> Row | None:
    """The last row of ``file`` with this fingerprint of its evaluation, if there is one."""
    rows = read_lines(file, "a result row") if file.exists() else []
    return next((row for row in reversed(rows) if row.get("evaluation") == evaluation), None)


def write_hypotheses(file: Path, sources: Sequence[str], references: Sequence[Sequence[str]], outputs: Outputs) -> None:
    """What was decoded, a line a source: ``source``, ``references``, ``hypothesis`` and its ``candidates``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    names = ("source", "references", "hypothesis", "candidates")
    groups = zip(*references, strict=True)
    columns = zip(sources, groups, outputs.texts, outputs.candidates, strict=True)
    lines = [json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False) + "\n" for values in columns]
    # Another job with the same settings writes the same; a reader never sees half of it.
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_text("".join(lines), encoding="utf-8")
    draft.replace(file)


def read_hypotheses(file: Path) -> list[Row]:
    """The lines of :func:`write_hypotheses`."""
    require(file.is_file(), f"there is no {file}")
    lines = read_lines(file, "a line with source, references and hypothesis")
    require(all(map(_is_hypothesis, lines)), f"{file} does not hold hypotheses; name a file of <run>/hypotheses")
    counts = {len(line["references"]) for line in lines}
    require(len(counts) == 1, f"{file}: every line needs as many references, got {sorted(counts) or 'none'}")
    return lines


def _is_hypothesis(line: Row) -> bool:
    source, references, hypothesis = (line.get(name) for name in ("source", "references", "hypothesis"))
    if not isinstance(references, list) or not references:
        return False
    return all(isinstance(text, str) for text in (source, hypothesis, *references))


def check_writable(file: Path) -> None:
    """Refuse a file that could not be written, before there is anything to write."""
    there = next(parent for parent in file.absolute().parents if parent.exists())
    usable = there.is_dir() and os.access(there, os.W_OK) and not file.is_dir()
    require(usable, f"{file} cannot be written: {there} is not a folder to write to; name another place")


def read_lines(file: Path, what: str) -> list[Row]:
    """One JSON object a line."""
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
