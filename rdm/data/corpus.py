"""Corpora in files of several formats; ``.gz`` files are decompressed.

A :class:`Corpus` has three splits of one or more aligned columns: sources and targets, or documents alone. There are
also generated corpora (:mod:`rdm.data.toy`) and those of the Hugging Face Hub (:mod:`rdm.data.hub`).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal

from rdm.data.reading import any_version_exists, existing_version, matching_names, stream_lines
from rdm.data.tables import FORMATS, JSON_LINES, format_of, stream_columns
from rdm.describe import Described
from rdm.errors import UserError, require
from rdm.hashing import file_hash, short_hash

Split = Literal["train", "valid", "test"]
Texts = tuple[list[str], ...]
"""The columns of a split, aligned: ``(sources, targets)`` or ``(documents,)``."""
Example = tuple[str, ...]
"""The text of one example in each column."""
FileNames = str | list[str] | dict[str, str | list[str]] | None
"""The files of a split: a name or pattern, several of them, the names of each side, or None for no split."""
Group = tuple[Path, ...]
"""Files that belong together: one file, or one file per side."""


class Corpus(Described, ABC):
    """Text in three splits."""

    @abstractmethod
    def read(self, split: Split) -> Texts:
        """Return the text of a split."""

    def stream(self, split: Split) -> Iterator[Example]:
        """Yield the examples of a split in the order of :meth:`read`; large corpora do not hold them in memory."""
        return zip(*self.read(split), strict=True)

    def count(self, split: Split) -> int:
        """Return the number of examples of a split; the text is parsed, so an error in it is raised."""
        return sum(1 for _ in self.stream(split))

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
        """Return remarks about the examples of a split to print for the user."""
        return []


class StreamedCorpus(Corpus):
    """A corpus that is read example by example."""

    @abstractmethod
    def stream(self, split: Split) -> Iterator[Example]:
        """Yield the examples of a split."""

    def read(self, split: Split) -> Texts:
        examples = list(self.stream(split))
        columns = range(len(examples[0])) if examples else range(1)
        return tuple([example[column] for example in examples] for column in columns)


class Files(StreamedCorpus):
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
    def stream_group(self, files: Group) -> Iterator[Example]:
        """Yield the examples of files that belong together."""

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
        """Return whether any file of a split exists: an incomplete split is an error, not a missing one."""
        return any_version_exists(path for group in self._groups(split) for path in group)

    def any_exists(self) -> bool:
        """Return whether any file of any split exists."""
        return any(self.exists(split) for split in self.names)

    def stream(self, split: Split) -> Iterator[Example]:
        for files in self.files(split):
            yield from self.stream_group(files)

    def fingerprint(self, split: Split) -> str:
        return short_hash(type(self).__name__, *(file_hash(file) for group in self.files(split) for file in group))

    def locate(self, split: Split, index: int) -> str:
        for files in self.files(split):
            count = sum(1 for _ in self.stream_group(files))
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

    def stream_group(self, files: Group) -> Iterator[Example]:
        table = format_of(files[0].name) if len(files) == 1 else None
        return stream_columns(files[0], self.sides, table) if table else stream_aligned(*files)

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

    def stream_group(self, files: Group) -> Iterator[Example]:
        return stream_columns(files[0], self.keys, JSON_LINES)


class Lines(Files):
    """Text files whose lines are the only column."""

    def stream_group(self, files: Group) -> Iterator[Example]:
        return zip(stream_lines(files[0]))


class Documents(StreamedCorpus):
    """Documents made of the lines of another corpus.

    Args:
        lines: a corpus with one column.
        first_line: a regular expression that matches the first line of a document; None if blank lines separate them.
    """

    def __init__(self, lines: Corpus, first_line: str | None = None) -> None:
        self.lines, self.first_line = lines, compile_pattern(first_line)

    def stream(self, split: Split) -> Iterator[Example]:
        return zip(join_lines((line for (line,) in self.lines.stream(split)), self.first_line))

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


def stream_aligned(source: Path, target: Path) -> Iterator[Example]:
    """Yield the pairs of lines of two files, which must have equally many."""
    sides = (stream_lines(source), stream_lines(target))
    for number, pair in enumerate(zip_longest(*sides)):
        if None in pair:
            longer = number + 1 + sum(1 for _ in chain(*sides))
            counts = [number if line is None else longer for line in pair]
            message = f"{source} has {counts[0]} lines, but {target} has {counts[1]}: the lines must be aligned"
            raise UserError(message)
        yield pair


def compile_pattern(first_line: str | None) -> re.Pattern[str] | None:
    """Return the compiled pattern of a document's first line."""
    try:
        return re.compile(first_line) if first_line else None
    except re.error as error:
        raise UserError(f"data.first_line: {first_line!r} is not a regular expression: {error}") from error


def join_lines(lines: Iterable[str], first_line: re.Pattern[str] | None) -> Iterator[str]:
    """Yield documents, which begin where ``first_line`` matches or else after a blank line."""
    document: list[str] = []
    for line in lines:
        if document and (first_line.match(line) if first_line else not line):
            yield "\n".join(document)
            document = []
        if line:
            document.append(line)
    if document:
        yield "\n".join(document)
