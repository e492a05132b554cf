"""Corpora in files of several formats; ``.gz`` files are decompressed.

A :class:`Corpus` has three splits of one or more aligned columns: sources and targets, or documents alone. There are
also generated corpora (:mod:`rdm.data.toy`) and those of the Hugging Face Hub (:mod:`rdm.data.hub`).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from rdm.data.reading import any_version_exists, existing_version, matching_names, read_lines
from rdm.data.tables import FORMATS, JSON_LINES, format_of, read_columns
from rdm.describe import Described
from rdm.errors import UserError, require
from rdm.hashing import file_hash, short_hash

Split = Literal["train", "valid", "test"]
Texts = tuple[list[str], ...]
"""The columns of a split, aligned: ``(sources, targets)`` or ``(documents,)``."""
FileNames = str | list[str] | dict[str, str | list[str]] | None
"""The files of a split: a name or pattern, several of them, the names of each side, or None for no split."""
Group = tuple[Path, ...]
"""Files that belong together: one file, or one file per side."""


class Corpus(Described, ABC):
    """Text in three splits."""

    @abstractmethod
    def read(self, split: Split) -> Texts:
        """Return the text of a split."""

    @abstractmethod
    def fingerprint(self, split: Split) -> str:
        """Return a hash that changes whenever the split's text changes; computed without parsing the text."""

    def references(self, split: Split) -> list[list[str]]:
        """Return one or more lists of references, each aligned with the sources of the split."""
        return [self.read(split)[1]]

    def exists(self, split: Split) -> bool:
        """Return whether the corpus has a split."""
        return True

    def locate(self, split: Split, index: int) -> str:
        """Return where an example of a split is, for messages; ``index`` counts from 0."""
        return f"example {index + 1}"

    def remarks(self, split: Split) -> list[str]:
        """Return what a user should know about the examples of a split."""
        return []


class Files(Corpus):
    """A corpus in files below ``root``; every split may have several, and None means that a split does not exist."""

    def __init__(self, root: str, train: FileNames, valid: FileNames, test: FileNames) -> None:
        self.root = Path(root)
        self.names: dict[Split, FileNames] = {"train": train, "valid": valid, "test": test}

    def groups(self, name: str) -> list[Group]:
        """Return the files that a name or pattern stands for, without ``.gz``; they need not exist."""
        return [(self.root / each,) for each in matching_names(name, self.root)]

    def groups_by_side(self, names: dict[str, str | list[str]], key: str) -> list[Group]:
        """Return the files of a split that are named separately for each side, without ``.gz``."""
        raise UserError(f"{key} must be a file name or a list of them, got {names}")

    @abstractmethod
    def read_group(self, files: Group) -> Texts:
        """Return the text of files that belong together."""

    def _groups(self, split: Split) -> list[Group]:
        names, key = self.names[split], f"data.{split}"
        if names is None:
            return []
        if isinstance(names, dict):
            return self.groups_by_side(names, key)
        return [group for name in as_names(names, key) for group in self.groups(name)]

    def files(self, split: Split) -> list[Group]:
        """Return the existing files of a split, compressed or not."""
        names = self.names[split]
        require(names is not None, f"there is no {split} split: set its file with data.{split}=...")
        groups = self._groups(split)
        require(bool(groups), f"data.{split}={names}: no file in {self.root} matches")
        return [tuple(existing_version(path) for path in group) for group in groups]

    def exists(self, split: Split) -> bool:
        """Return whether any file of a split exists: an incomplete split is an error, no reason to do without it."""
        return any_version_exists(path for group in self._groups(split) for path in group)

    def any_exists(self) -> bool:
        """Return whether any file of any split exists."""
        return any(self.exists(split) for split in self.names)

    def read(self, split: Split) -> Texts:
        parts = [self.read_group(files) for files in self.files(split)]
        return tuple([text for column in columns for text in column] for columns in zip(*parts, strict=True))

    def fingerprint(self, split: Split) -> str:
        return short_hash(type(self).__name__, *(file_hash(file) for group in self.files(split) for file in group))

    def locate(self, split: Split, index: int) -> str:
        for files in self.files(split):
            count = len(self.read_group(files)[0])
            if index < count:
                return f"{files[0]}, {'row' if format_of(files[0].name) else 'line'} {index + 1}"
            index -= count
        return super().locate(split, index)


class AlignedText(Files):
    """Sources and targets, in two aligned files with one sentence per line or in two columns of a table.

    Args:
        root: folder of the files.
        source, target: the names of both sides.
        train, valid, test: the files of a split, with ``source`` ``de`` and ``target`` ``en``:

            - ``train`` stands for the aligned files ``train.de`` and ``train.en``,
            - ``train.tsv`` (or csv, jsonl, parquet) for the columns ``de`` and ``en`` of a table,
            - ``parts/*`` and ``parts/*.tsv`` for all files that match, and a list for several of these,
            - ``{de: train.german, en: train.english}`` for aligned files with other names.
    """

    def __init__(
        self,
        root: str,
        source: str,
        target: str,
        train: FileNames = "train",
        valid: FileNames = "valid",
        test: FileNames = "test",
    ) -> None:
        super().__init__(root, train, valid, test)
        self.sides = (source, target)

    def groups(self, name: str) -> list[Group]:
        if format_of(name):
            return super().groups(name)
        source, target = (f".{side}" for side in self.sides)
        prefixes = [each.removesuffix(source) for each in matching_names(name + source, self.root)]
        groups: list[Group] = [
            (self.root / f"{prefix}{source}", self.root / f"{prefix}{target}") for prefix in prefixes
        ]
        require(
            any_version_exists(path for group in groups for path in group) or not (self.root / name).is_file(),
            f"{self.root / name} is a single file, but no table ({', '.join(FORMATS)}): aligned files are named "
            f"without {source} and {target}, or one by one: {{{self.sides[0]}: FILE, {self.sides[1]}: FILE}}",
        )
        return groups

    def groups_by_side(self, names: dict[str, str | list[str]], key: str) -> list[Group]:
        given = ", ".join(map(str, names))
        require(names.keys() == set(self.sides), f"{key} must name files for {' and '.join(self.sides)}, got {given}")
        source, target = (self._side_files(names[side], f"{key}.{side}") for side in self.sides)
        counts = f"{len(source)} files for {self.sides[0]}, but {len(target)} for {self.sides[1]}"
        require(len(source) == len(target), f"{key} names {counts}: they must be aligned")
        return list(zip(source, target, strict=True))

    def _side_files(self, names: str | list[str], key: str) -> list[Path]:
        return [self.root / each for name in as_names(names, key) for each in matching_names(name, self.root)]

    def read_group(self, files: Group) -> Texts:
        table = format_of(files[0].name) if len(files) == 1 else None
        if table:
            return read_columns(files[0], self.sides, table)
        sources, targets = (read_lines(file) for file in files)
        require(
            len(sources) == len(targets),
            f"{files[0]} has {len(sources)} lines, but {files[1]} has {len(targets)}: the lines must be aligned",
        )
        return sources, targets

    def fingerprint(self, split: Split) -> str:
        tables = any(len(group) == 1 for group in self.files(split))
        return short_hash(super().fingerprint(split), *self.sides) if tables else super().fingerprint(split)


class JsonLines(Files):
    """One JSON object per line, whatever the file is called; ``source`` and ``target`` are the keys of the texts."""

    def __init__(
        self,
        root: str,
        source: str = "src",
        target: str = "trg",
        train: FileNames = "train.jsonl",
        valid: FileNames = "valid.jsonl",
        test: FileNames = "test.jsonl",
    ) -> None:
        super().__init__(root, train, valid, test)
        self.keys = (source, target)

    def fingerprint(self, split: Split) -> str:
        return short_hash(super().fingerprint(split), *self.keys)

    def read_group(self, files: Group) -> Texts:
        return read_columns(files[0], self.keys, JSON_LINES)


class Lines(Files):
    """Text files whose lines are the only column."""

    def read_group(self, files: Group) -> Texts:
        return (read_lines(files[0]),)


class Documents(Corpus):
    """Documents made of the lines of another corpus.

    Args:
        lines: a corpus with one column.
        first_line: a regular expression that matches the first line of a document; None if blank lines separate them.
    """

    def __init__(self, lines: Corpus, first_line: str | None = None) -> None:
        self.lines, self.first_line = lines, compile_pattern(first_line)

    def read(self, split: Split) -> Texts:
        return (join_lines(self.lines.read(split)[0], self.first_line),)

    def fingerprint(self, split: Split) -> str:
        return short_hash(self.lines.fingerprint(split), str(self.first_line and self.first_line.pattern))

    def exists(self, split: Split) -> bool:
        return self.lines.exists(split)


def as_names(names: str | list[str], key: str) -> list[str]:
    """Return one or more file names as a list."""
    listed = [names] if isinstance(names, str) else names
    wrong = [name for name in listed if not isinstance(name, str)]
    require(not wrong, f"{key}: {wrong[:1]} is not a list of file names")
    return listed


def compile_pattern(first_line: str | None) -> re.Pattern[str] | None:
    """Return the compiled pattern of a document's first line."""
    try:
        return re.compile(first_line) if first_line else None
    except re.error as error:
        raise UserError(f"data.first_line: {first_line!r} is not a regular expression: {error}") from error


def join_lines(lines: Iterable[str], first_line: re.Pattern[str] | None) -> list[str]:
    """Return documents, which begin where ``first_line`` matches or else after a blank line."""
    documents: list[list[str]] = [[]]
    for line in lines:
        if first_line.match(line) if first_line else not line:
            documents.append([])
        if line:
            documents[-1].append(line)
    return ["\n".join(document) for document in documents if document]
