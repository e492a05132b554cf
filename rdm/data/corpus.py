"""Where text comes from: files of several formats; ``.gz`` is unpacked on the way.

A :class:`Corpus` has three splits of one or more aligned columns: sources and targets, or documents alone. Text that is
generated (:mod:`rdm.data.toy`) or comes from the hub (:mod:`rdm.data.hub`) is a corpus too.
"""

import gzip
import json
import re
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Literal

from rdm.data.cache import digest, file_hash
from rdm.errors import UserError, require

Split = Literal["train", "valid", "test"]
Texts = tuple[list[str], ...]
"""The columns of a split, aligned: ``(sources, targets)`` or ``(documents,)``."""


class Corpus(ABC):
    """Text in three splits."""

    @abstractmethod
    def read(self, split: Split) -> Texts:
        """The text of a split."""

    @abstractmethod
    def fingerprint(self, split: Split) -> str:
        """Another word whenever the text of the split is another; found without reading the text."""

    def references(self, split: Split) -> list[list[str]]:
        """One or more lists of reference texts, each aligned with the sources of the split."""
        return [self.read(split)[1]]


class Files(Corpus):
    """A corpus in files: paths below ``root``, null where there is no such split."""

    def __init__(self, root: str, train: str | None, valid: str | None, test: str | None) -> None:
        self.root = Path(root)
        self.names = {"train": train, "valid": valid, "test": test}

    @abstractmethod
    def paths(self, name: str) -> list[Path]:
        """The files of a split of that name."""

    def files(self, split: Split) -> list[Path]:
        """The files of a split, packed or not."""
        name = self.names[split]
        if name is None:
            raise UserError(f"there is no {split} split: name its file with data.{split}=...")
        return [find(path) for path in self.paths(str(self.root / name))]

    def any_there(self) -> bool:
        """Whether any file of any split is there."""
        names = [name for name in self.names.values() if name is not None]
        paths = [path for name in names for path in self.paths(str(self.root / name))]
        return any(version.is_file() for path in paths for version in versions(path))

    def fingerprint(self, split: Split) -> str:
        return digest(type(self).__name__, *(file_hash(file) for file in self.files(split)))


class AlignedText(Files):
    """Two files a split, one sentence a line: ``train.<source>`` and ``train.<target>``, e.g. ``train.de``."""

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
            f"{files[0]} has {len(sources)} lines, but {files[1]} has {len(targets)}: line must match line",
        )
        return sources, targets


class JsonLines(Files):
    """One file a split, one JSON object a line with a text under the keys ``source`` and ``target``."""

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
        return digest(super().fingerprint(split), *self.keys)

    def read(self, split: Split) -> Texts:
        (file,) = self.files(split)
        rows = [self._row(line, f"{file}, line {number}") for number, line in enumerate(read_lines(file), 1)]
        return [source for source, _ in rows], [target for _, target in rows]

    def _row(self, line: str, where: str) -> tuple[str, str]:
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UserError(f"{where} is not JSON: {error}") from error
        source, target = ((row.get(key) if isinstance(row, dict) else None) for key in self.keys)
        if not isinstance(source, str) or not isinstance(target, str):
            raise UserError(f"{where} needs the keys {self.keys[0]!r} and {self.keys[1]!r}, each with a text")
        try:
            (source + target).encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{where} has half a character: a surrogate \\uD800 to \\uDFFF alone") from error
        return source, target


class Lines(Files):
    """One file a split; the only column holds its lines."""

    def paths(self, name: str) -> list[Path]:
        return [Path(name)]

    def read(self, split: Split) -> Texts:
        (file,) = self.files(split)
        return (read_lines(file),)


class Documents(Corpus):
    """Lines joined to documents.

    Args:
        lines: a corpus of one column.
        first_line: a regular expression that the first line of a document matches; null where blank lines part them.
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
        return digest(self.lines.fingerprint(split), str(self.first_line and self.first_line.pattern))


def versions(file: Path) -> list[Path]:
    """``file``, and ``file.gz`` beside it."""
    return [file, file.with_name(file.name + ".gz")]


def find(file: Path) -> Path:
    """The first version of ``file`` that is there."""
    there = [version for version in versions(file) if version.is_file()]
    require(bool(there), f"there is no {file} (nor {file.name}.gz)")
    return there[0]


def read_lines(file: Path) -> list[str]:
    """The lines of a UTF-8 file, without line ends and outer spaces."""
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
