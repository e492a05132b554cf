"""Generated corpora for every task family; they need neither files nor a network."""

import random
from abc import abstractmethod
from pathlib import Path

from rdm.data import toy_language, toy_words
from rdm.data.corpus import Corpus, Split, Texts
from rdm.data.toy_language import Task, ToyLanguage
from rdm.errors import require
from rdm.hashing import file_hash, settings_hash, short_hash

SPLITS: tuple[Split, ...] = ("test", "valid", "train")
"""In the order of drawing: a larger training split leaves the other splits unchanged."""


class Toy(Corpus):
    """Generated text, determined by the constructor arguments."""

    def __init__(self, train_size: int, valid_size: int, test_size: int, seed: int) -> None:
        self.sizes = {"train": train_size, "valid": valid_size, "test": test_size}
        require(min(self.sizes.values()) >= 1, f"every split needs at least one example, got sizes {self.sizes}")
        self.seed = seed
        self._language = ToyLanguage(seed)

    def fingerprint(self, split: Split) -> str:
        code = [file_hash(Path(file)) for file in (__file__, toy_language.__file__, toy_words.__file__)]
        return short_hash(split, settings_hash(self.describe()), *code)


class ToyPairs(Toy):
    """Sources and targets; no meaning occurs in two splits.

    A source has many correct targets; validation and test sources have ``references`` of them.
    """

    def __init__(
        self,
        train_size: int = 20_000,
        valid_size: int = 500,
        test_size: int = 500,
        references: int = 8,
        seed: int = 0,
    ) -> None:
        super().__init__(train_size, valid_size, test_size, seed)
        require(references >= 1, f"data.corpus.references must be at least 1, got {references}")
        self.draws = {"train": 1, "valid": references, "test": references}
        self._taken: set[str] = set()
        self._drawn: dict[Split, list[tuple[str, list[str]]]] = {}

    @property
    @abstractmethod
    def task(self) -> Task:
        """The function that makes a source and its targets from clauses."""

    def drawn(self, split: Split) -> list[tuple[str, list[str]]]:
        """Return the sources of a split with their targets, without meanings of splits drawn earlier."""
        for seed, each in enumerate(SPLITS[: SPLITS.index(split) + 1]):
            if each not in self._drawn:
                self._drawn[each] = self._language.pairs(
                    self.sizes[each], seed, self._taken, self.draws[each], self.task
                )
        return self._drawn[split]

    def read(self, split: Split) -> Texts:
        pairs = self.drawn(split)
        return [source for source, _ in pairs], [targets[0] for _, targets in pairs]

    def references(self, split: Split) -> list[list[str]]:
        return [list(stream) for stream in zip(*(targets for _, targets in self.drawn(split)), strict=True)]


class ToyTranslation(ToyPairs):
    """From generated pseudo-German to generated English."""

    @property
    def task(self) -> Task:
        return self._language.translation


class ToyQuestions(ToyPairs):
    """A statement and a question that it answers."""

    @property
    def task(self) -> Task:
        return self._language.question


class ToyParaphrase(ToyPairs):
    """A sentence and a paraphrase of it."""

    @property
    def task(self) -> Task:
        return self._language.paraphrase


class ToyText(Toy):
    """Documents of 4 to 12 sentences about three nouns; sizes are numbers of documents."""

    def __init__(self, train_size: int = 5_000, valid_size: int = 200, test_size: int = 200, seed: int = 0) -> None:
        super().__init__(train_size, valid_size, test_size, seed)

    def read(self, split: Split) -> Texts:
        rng = random.Random(f"{self.seed}/{split}")
        return ([self._language.document(rng, rng.randint(4, 12)) for _ in range(self.sizes[split])],)
