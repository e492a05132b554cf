"""The part of a corpus that a run uses: a limited training split, and a validation split taken from it."""

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from rdm.data.corpus import Corpus, Example, Split, StreamedCorpus
from rdm.errors import require
from rdm.hashing import derive_seed, short_hash

Item = TypeVar("Item")


class Selection(StreamedCorpus):
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

    def stream(self, split: Split) -> Iterator[Example]:
        return self._select(split, self.corpus.stream(self._origin(split)))

    def references(self, split: Split) -> list[list[str]]:
        return [list(self._select(split, column)) for column in self.corpus.references(self._origin(split))]

    def count(self, split: Split) -> int:
        whole = self.corpus.count(self._origin(split))
        return sum(1 for _ in self._select(split, range(whole)))

    def fingerprint(self, split: Split) -> str:
        whole = self.corpus.fingerprint(self._origin(split))
        hold_out = None if split == "test" else self.hold_out
        limit = self.limit if split == "train" else None
        return whole if hold_out is None and limit is None else short_hash(whole, split, str(hold_out), str(limit))

    def locate(self, split: Split, index: int) -> str:
        origin = self._origin(split)
        rows = self._select(split, range(self.corpus.count(origin)))
        return self.corpus.locate(origin, next(islice(rows, index, None)))

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

    def _select(self, split: Split, examples: Iterable[Item]) -> Iterator[Item]:
        """Return the examples of ``split`` among those of its origin."""
        if split != "test" and self.hold_out is not None:
            held_out = self._held_out()
            examples = (each for row, each in enumerate(examples) if (row in held_out) == (split == "valid"))
        return islice(examples, self.limit if split == "train" else None)

    def _held_out(self) -> set[int]:
        """Return the rows of the training split that are held out."""
        assert self.hold_out is not None
        count = self.corpus.count("train")
        message = f"data.hold_out={self.hold_out} leaves no training example: the train split has {count}"
        require(self.hold_out < count, message)
        # Not the seed of the run: runs that differ in the seed are compared on the same validation split.
        generator = random.Random(derive_seed("hold_out", self.hold_out, count))
        return set(generator.sample(range(count), self.hold_out))
