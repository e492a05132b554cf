"""Corpora of the Hugging Face Hub, loaded with ``datasets``."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from rdm.data.corpus import Corpus, Example, Files, Split, StreamedCorpus
from rdm.data.tables import column_names
from rdm.errors import UserError
from rdm.hashing import short_hash

ROWS = 1_000  # rows read at a time


class Hub(StreamedCorpus):
    """A data set of the Hub that consists of data files; data sets with a loading script are refused.

    Args:
        path, name, revision: the data set, as for ``datasets.load_dataset``.
        columns: the text columns, ``[source, target]`` or ``[text]``; ``translation.de`` is a key within a column.
        train, valid, test: the names of the splits in the data set.
    """

    def __init__(
        self,
        path: str,
        columns: list[str],
        name: str | None = None,
        revision: str | None = None,
        train: str = "train",
        valid: str = "validation",
        test: str = "test",
    ) -> None:
        self.path, self.name, self.revision, self.columns = path, name, revision, list(columns)
        self.names = {"train": train, "valid": valid, "test": test}

    def _load(self, split: Split) -> Any:
        from datasets import load_dataset  # takes a second to import
        from datasets.exceptions import DatasetGenerationError, DatasetsError

        try:
            return load_dataset(self.path, self.name, revision=self.revision, split=self.names[split])
        except (OSError, ValueError, RuntimeError, DatasetsError) as error:  # ConnectionError is an OSError
            cause = (error.__cause__ or error) if isinstance(error, DatasetGenerationError) else error
            reason = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
            raise UserError(f"the Hub data set {self.path} cannot be loaded: {reason}") from error

    def stream(self, split: Split) -> Iterator[Example]:
        table = self._load(split)
        names = [column.split(".", 1)[0] for column in self.columns]
        for name in names:
            if name not in table.column_names:
                raise UserError(f"the Hub data set {self.path} has no column {name}; it has {table.column_names}")
        number = 0
        for rows in table.select_columns(list(dict.fromkeys(names))).iter(batch_size=ROWS):
            for values in zip(*(rows[name] for name in names), strict=True):
                number += 1
                yield tuple(map(self._text, values, self.columns, repeat(table), repeat(number)))

    def _text(self, value: Any, column: str, table: Any, number: int) -> str:
        """Return the text of a column in row ``number``, without line breaks."""
        _, *key = column.split(".", 1)
        text = value if not key else value.get(key[0]) if isinstance(value, dict) else None
        if not isinstance(text, str):
            found = ", ".join(column_names(table[number - 1]))
            raise UserError(f"the Hub data set {self.path}, row {number} has no text under {column}; it has {found}")
        return " ".join(text.split("\n")).strip()

    def fingerprint(self, split: Split) -> str:
        return short_hash(self._load(split)._fingerprint, *self.columns)


class FilesOrHub(StreamedCorpus):
    """Files if any of them exists, otherwise the Hub; ``card`` documents how to obtain the files."""

    def __init__(self, files: Files, hub: Hub | None, card: str) -> None:
        self.files, self.hub, self.card = files, hub, card

    @property
    def chosen(self) -> Corpus:
        if self.hub is not None and not self.files.any_exists():
            return self.hub
        return self.files

    def stream(self, split: Split) -> Iterator[Example]:
        with self._with_advice():
            yield from self.chosen.stream(split)

    def fingerprint(self, split: Split) -> str:
        with self._with_advice():
            return self.chosen.fingerprint(split)

    def exists(self, split: Split) -> bool:
        return self.chosen.exists(split)

    def locate(self, split: Split, index: int) -> str:
        return self.chosen.locate(split, index)

    @contextmanager
    def _with_advice(self) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            if self.files.any_exists():
                raise
            raise UserError(f"{error}; files are expected in data.root={self.files.root}, see {self.card}") from error
