"""Corpora in files of several formats; ``.gz`` files are decompressed.

A :class:`Corpus` has three splits of one or more aligned columns: sources and targets, or documents alone. There are
also generated corpora (:mod:`rdm.data.toy`) and those of the Hugging Face Hub (:mod:`rdm.data.hub`).
"""

import gzip
import json
import re
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Literal

from rdm.describe import Described
from rdm.errors import UserError, require
from rdm.hashing import file_hash, short_hash

Split = Literal["train", "valid", "test"]
Texts = tuple[list[str], ...]
"""The columns of a split, aligned: ``(sources, targets)`` or ``(documents,)``."""


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


class Files(Corpus):
    """A corpus in files: paths below ``root``; None for a split that does not exist."""

    def __init__(self, root: str, train: str | None, valid: str | None, test: str | None) -> None:
        self.root = Path(root)
        self.names = {"train": train, "valid": valid, "test": test}

    @abstractmethod
    def paths(self, name: str) -> list[Path]:
        """Return the files of a split, given its name joined to ``root``, without ``.gz``."""

    def files(self, split: Split) -> list[Path]:
        """Return the existing files of a split, compressed or not."""
        name = self.names[split]
        if name is None:
            raise UserError(f"there is no {split} split: set its file with data.{split}=...")
        return [existing_version(path) for path in self.paths(str(self.root / name))]

    def any_exists(self) -> bool:
        """Return whether any file of any split exists."""
        names = [name for name in self.names.values() if name is not None]
        paths = [path for name in names for path in self.paths(str(self.root / name))]
        return any(version.is_file() for path in paths for version in versions(path))

    def fingerprint(self, split: Split) -> str:
        return short_hash(type(self).__name__, *(file_hash(file) for file in self.files(split)))


class AlignedText(Files):
    """Two files per split, ``train.<source>`` and ``train.<target>``, with one sentence per line."""

    def __init__(
        self,
        root: str,
        source: str,
        target: str,
        train: str | None = "train",
        valid: str | None = "valid",
        test: str | None = "test",
    ) -> None:
        super().__init__(root, train, valid, test)
        self.sides = (source, target)

    def paths(self, name: str) -> list[Path]:
        return [Path(f"{name}.{side}") for side in self.sides]

    def read(self, split: Split) -> Texts:
        files = self.files(split)
        sources, targets = (read_lines(file) for file in files)
        require(
            len(sources) == len(targets),
            f"{files[0]} has {len(sources)} lines, but {files[1]} has {len(targets)}: the lines must be aligned",
        )
        return sources, targets


class JsonLines(Files):
    """One file per split, one JSON object per line; ``source`` and ``target`` are the keys of the texts."""

    def __init__(
        self,
        root: str,
        source: str = "src",
        target: str = "trg",
        train: str | None = "train.jsonl",
        valid: str | None = "valid.jsonl",
        test: str | None = "test.jsonl",
    ) -> None:
        super().__init__(root, train, valid, test)
        self.keys = (source, target)

    def paths(self, name: str) -> list[Path]:
        return [Path(name)]

    def fingerprint(self, split: Split) -> str:
        return short_hash(super().fingerprint(split), *self.keys)

    def read(self, split: Split) -> Texts:
        (file,) = self.files(split)
        rows = [self._parse(line, f"{file}, line {number}") for number, line in enumerate(read_lines(file), 1)]
        return [source for source, _ in rows], [target for _, target in rows]

    def _parse(self, line: str, location: str) -> tuple[str, str]:
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UserError(f"{location} is not JSON: {error}") from error
        source, target = ((row.get(key) if isinstance(row, dict) else None) for key in self.keys)
        if not isinstance(source, str) or not isinstance(target, str):
            raise UserError(f"{location} needs the keys {self.keys[0]!r} and {self.keys[1]!r}, each with a text")
        try:
            (source + target).encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{location} has an unpaired surrogate (\\uD800 to \\uDFFF), which is not a character"
            ) from error
        return source, target


class Lines(Files):
    """One file per split; its lines are the only column."""

    def paths(self, name: str) -> list[Path]:
        return [Path(name)]

    def read(self, split: Split) -> Texts:
        (file,) = self.files(split)
        return (read_lines(file),)


class Documents(Corpus):
    """Documents made of the lines of another corpus.

    Args:
        lines: a corpus with one column.
        first_line: a regular expression that matches the first line of a document; None if blank lines separate them.
    """

    def __init__(self, lines: Corpus, first_line: str | None = None) -> None:
        self.lines = lines
        try:
            self.first_line = re.compile(first_line) if first_line else None
        except re.error as error:
            raise UserError(f"data.first_line: {first_line!r} is not a regular expression: {error}") from error

    def read(self, split: Split) -> Texts:
        documents: list[list[str]] = [[]]
        for line in self.lines.read(split)[0]:
            if self.first_line.match(line) if self.first_line else not line:
                documents.append([])
            if line:
                documents[-1].append(line)
        return (["\n".join(document) for document in documents if document],)

    def fingerprint(self, split: Split) -> str:
        return short_hash(self.lines.fingerprint(split), str(self.first_line and self.first_line.pattern))


def versions(file: Path) -> list[Path]:
    """Return ``file`` and ``file.gz``."""
    return [file, file.with_name(file.name + ".gz")]


def existing_version(file: Path) -> Path:
    """Return ``file`` or else ``file.gz``, whichever exists."""
    found = [version for version in versions(file) if version.is_file()]
    require(bool(found), f"there is no {file} (nor {file.name}.gz)")
    return found[0]


def read_lines(file: Path) -> list[str]:
    """Return the lines of a UTF-8 file without line ends and surrounding white space."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{file}, line {line} is not UTF-8") from error
    # Only "\n" ends a line: str.splitlines would also split at form feeds and Unicode separators inside a sentence.
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    require(lines != [""], f"{file} is empty")
    return lines
