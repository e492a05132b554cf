"""Text columns of table files: TSV, CSV, JSON lines and Parquet; the file suffix determines the format.

A column is named as in the file; ``translation.de`` is the key ``de`` within the column ``translation``. TSV files have
no quoting, as is usual for sentence pairs: a quotation mark is a character like any other. CSV files are quoted as
spreadsheets write them, so that a text may contain commas, quotation marks and line feeds.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdm.data.reading import PACKED, stream_lines, stream_raw_lines
from rdm.errors import UserError, require

Rows = Iterator[tuple[str, Any]]
"""For each row its location in the file (``line 3``) and its values by column."""

LARGEST_FIELD = 2**31 - 1  # characters; the default of the csv module is 131,072, less than a long document


@dataclass(frozen=True)
class Format:
    """How to read the rows of a file, and what the format calls its columns."""

    rows: Callable[[Path], Rows]
    columns: str = "columns"


def format_of(name: str) -> Format | None:
    """Return the table format of a file by its suffix; None for any other file."""
    return FORMATS.get(Path(name.removesuffix(PACKED)).suffix.lower())


def stream_columns(file: Path, columns: Sequence[str], table: Format) -> Iterator[tuple[str, ...]]:
    """Yield text columns of a file, row by row; a row without one is refused with the names of those it has."""
    location = None
    for location, row in table.rows(file):
        values = [_value(row, column) for column in columns]
        if not all(isinstance(value, str) for value in values):
            wanted = " and ".join(map(repr, columns))
            found = ", ".join(column_names(row)) or "none"
            raise UserError(
                f"{file}, {location} needs the {table.columns} {wanted}, each with a text; "
                f"it has the {table.columns} {found}"
            )
        yield tuple(_checked(value, file, location) for value in values)
    require(location is not None, f"{file} has no rows")


def _value(row: Any, column: str) -> Any:
    """Return a value by its name, or else by its dotted path; None if there is none."""
    if not isinstance(row, Mapping):
        return None
    first, _, rest = column.partition(".")
    return row[column] if column in row else _value(row.get(first), rest)


def column_names(row: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all values of a row; a value that is not text is marked."""
    for name, value in row.items() if isinstance(row, Mapping) else ():
        if isinstance(value, Mapping):
            yield from column_names(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}" + ("" if isinstance(value, str) else " (not a text)")


def _checked(text: str, file: Path, location: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        reason = "an unpaired surrogate (\\uD800 to \\uDFFF), which is not a character: correct or remove the row"
        raise UserError(f"{file}, {location} has {reason}") from error
    return text


def _json_rows(file: Path) -> Rows:
    for number, line in enumerate(stream_lines(file), 1):
        try:
            yield f"line {number}", json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UserError(f"{file}, line {number} is not JSON: {error}; one object per line is expected") from error


def _tsv_rows(file: Path) -> Rows:
    lines = (line.rstrip("\r").split("\t") for line in stream_raw_lines(file))
    header = next(lines)  # a file without lines is refused
    yield from _with_header(file, header, enumerate(lines, 2))


def _csv_rows(file: Path) -> Rows:
    csv.field_size_limit(LARGEST_FIELD)
    reader = csv.reader((f"{line}\n" for line in stream_raw_lines(file)), strict=True)

    def numbered() -> Iterator[tuple[int, list[str]]]:
        for fields in reader:
            if fields:  # a blank line has none
                yield reader.line_num, fields

    lines = numbered()
    try:
        _, header = next(lines, (0, []))
        require(bool(header), f"{file} is empty")
        yield from _with_header(file, header, lines)
    except csv.Error as error:
        raise UserError(f"{file}, line {reader.line_num} is not CSV: {error}") from error


def _with_header(file: Path, header: list[str], lines: Iterator[tuple[int, list[str]]]) -> Rows:
    names = [name.strip() for name in header]
    require(len(set(names)) == len(names), f"{file}, line 1 names a column twice: {', '.join(names)}")
    for number, fields in lines:
        message = f"{file}, line {number} has {len(fields)} fields, but line 1 names {len(names)} columns"
        require(len(fields) == len(names), f"{message}: {', '.join(names)}")
        yield f"line {number}", dict(zip(names, map(str.strip, fields), strict=True))


def _parquet_rows(file: Path) -> Rows:
    import pyarrow.parquet as parquet  # takes half a second to import
    from pyarrow import ArrowException

    number = 0
    try:
        for batch in parquet.ParquetFile(file).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", _stripped(row)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not a readable Parquet file: {str(error).splitlines()[0]}") from error


def _stripped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _stripped(each) for name, each in value.items()}
    return value.strip() if isinstance(value, str) else value


JSON_LINES = Format(_json_rows, "keys")
FORMATS = {
    ".csv": Format(_csv_rows),
    ".jsonl": JSON_LINES,
    ".parquet": Format(_parquet_rows),
    ".tsv": Format(_tsv_rows),
}
"""Table formats by the ending of the file name."""
