"""Where text comes from: generated, or read from files; ``.gz`` is unpacked on the way."""

import gzip
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Literal

from rdm.errors import UserError, require

Split = Literal["train", "valid", "test"]
Texts = tuple[list[str], list[str]]
"""Sources and targets of a split, aligned."""


class Corpus(ABC):
    """Aligned text in three splits."""

    @abstractmethod
    def read(self, split: Split) -> Texts:
        """The text of a split."""

    def references(self, split: Split) -> list[list[str]]:
        """One or more lists of reference texts, each aligned with the sources of the split."""
        return [self.read(split)[1]]


class AlignedText(Corpus):
    """Two files a split, one sentence a line: ``<root>/<train>.<source>`` and ``<root>/<train>.<target>``.

    Args:
        root: folder of the files.
        source, target: how the names of the two sides end, e.g. ``de`` and ``en``.
        train, valid, test: how the names of the splits begin.
    """

    def __init__(
        self, root: str, source: str, target: str, train: str = "train", valid: str = "valid", test: str = "test"
    ) -> None:
        self.root, self.sides = Path(root), (source, target)
        self.names = {"train": train, "valid": valid, "test": test}

    def read(self, split: Split) -> Texts:
        files = [find(self.root / f"{self.names[split]}.{side}") for side in self.sides]
        sources, targets = (read_lines(file) for file in files)
        require(
            len(sources) == len(targets),
            f"{files[0]} has {len(sources)} lines, but {files[1]} has {len(targets)}: line must match line",
        )
        return sources, targets


class JsonLines(Corpus):
    """One file a split, one JSON object a line with a text under the keys ``source`` and ``target``."""

    def __init__(
        self,
        root: str,
        source: str = "src",
        target: str = "trg",
        train: str = "train.jsonl",
        valid: str = "valid.jsonl",
        test: str = "test.jsonl",
    ) -> None:
        self.root, self.keys = Path(root), (source, target)
        self.names = {"train": train, "valid": valid, "test": test}

    def read(self, split: Split) -> Texts:
        file = find(self.root / self.names[split])
        rows = [self._row(line, f"{file}, line {number}") for number, line in enumerate(read_lines(file), 1)]
        return [source for source, _ in rows], [target for _, target in rows]

    def _row(self, line: str, where: str) -> tuple[str, str]:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where} is not JSON: {error.msg}") from error
        source, target = ((row.get(key) if isinstance(row, dict) else None) for key in self.keys)
        if not isinstance(source, str) or not isinstance(target, str):
            raise UserError(f"{where} needs the keys {self.keys[0]!r} and {self.keys[1]!r}, each with a text")
        return source, target


def find(file: Path) -> Path:
    """``file``, or ``file.gz`` beside it."""
    packed = file.with_name(file.name + ".gz")
    require(file.is_file() or packed.is_file(), f"there is no {file} (nor {packed.name})")
    return file if file.is_file() else packed


def read_lines(file: Path) -> list[str]:
    """The lines of a UTF-8 file, without line ends and outer spaces."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{file}, line {line} is not UTF-8") from error
    # Only "\n" ends a line: str.splitlines would also split at form feeds and Unicode separators inside a sentence.
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    require(lines != [""], f"{file} is empty")
    return lines
