"""The part of a corpus that a run uses: a limited training split, and a validation split taken from it."""

import random
from collections.abc import Sequence

from rdm.data.corpus import Corpus, Split, Texts
from rdm.errors import require
from rdm.hashing import derive_seed, short_hash


class Selection(Corpus):
    """Another corpus with fewer training examples.

    Args:
        corpus: the text.
        hold_out: this many training examples become the validation split, for a corpus without one. They are drawn at
            random, always the same ones, and are not trained on.
        limit: train on the first ``limit`` of the remaining examples; None means all.
    """

    def __init__(self, corpus: Corpus, hold_out: int | None = None, limit: int | None = None) -> None:
        for key, value in (("hold_out", hold_out), ("limit", limit)):
            require(value is None or value >= 1, f"data.{key} must be at least 1, or null, got {value}")
        self.corpus, self.hold_out, self.limit = corpus, hold_out, limit

    def exists(self, split: Split) -> bool:
        return self.corpus.exists(self._origin(split))

    def read(self, split: Split) -> Texts:
        return tuple(self._select(split, self.corpus.read(self._origin(split))))

    def references(self, split: Split) -> list[list[str]]:
        return self._select(split, self.corpus.references(self._origin(split)))

    def fingerprint(self, split: Split) -> str:
        whole = self.corpus.fingerprint(self._origin(split))
        hold_out = None if split == "test" else self.hold_out
        limit = self.limit if split == "train" else None
        return whole if hold_out is None and limit is None else short_hash(whole, split, str(hold_out), str(limit))

    def locate(self, split: Split, index: int) -> str:
        origin = self._origin(split)
        rows = self._rows(split, len(self.corpus.read(origin)[0]))
        return self.corpus.locate(origin, rows[index])

    def remarks(self, split: Split) -> list[str]:
        remarks = self.corpus.remarks(split)
        if self.hold_out is not None and split != "test":
            remarks.append("held out of train" if split == "valid" else f"{self.hold_out:,} held out as valid split")
        if self.limit is not None and split == "train":
            remarks.append(f"limited to the first {self.limit:,}")
        return remarks

    def _origin(self, split: Split) -> Split:
        """Return the split of the corpus that has the text of ``split``."""
        if split == "test" or self.hold_out is None:
            return split
        advice = "leave out data.hold_out, or set data.valid=null if the data are your own files"
        require(not self.corpus.exists("valid"), f"data.hold_out={self.hold_out}, but there is a valid split: {advice}")
        return "train"

    def _select(self, split: Split, columns: Sequence[list[str]]) -> list[list[str]]:
        rows = self._rows(split, len(columns[0]))
        return [[column[row] for row in rows] for column in columns]

    def _rows(self, split: Split, count: int) -> Sequence[int]:
        """Return the examples of ``split`` among the ``count`` of its origin."""
        rows: Sequence[int] = range(count)
        if split != "test" and self.hold_out is not None:
            message = f"data.hold_out={self.hold_out} leaves no training example: the train split has {count}"
            require(self.hold_out < count, message)
            # Not the seed of the run: runs that differ in the seed are compared on the same validation split.
            generator = random.Random(derive_seed("hold_out", self.hold_out, count))
            held_out = set(generator.sample(range(count), self.hold_out))
            rows = [row for row in rows if (row in held_out) == (split == "valid")]
        return rows[: self.limit] if split == "train" else rows
