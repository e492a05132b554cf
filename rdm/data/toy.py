"""Generated text for every task family: corpora that need no file and no network."""

import random
from abc import abstractmethod
from pathlib import Path

from rdm.data import toy_language
from rdm.data.cache import digest, file_hash
from rdm.data.corpus import Corpus, Split, Texts
from rdm.data.toy_language import Task, ToyLanguage
from rdm.errors import require

SPLITS: tuple[Split, ...] = ("test", "valid", "train")
"""In the order they are drawn, so that a longer training text leaves the other splits as they are."""


class Toy(Corpus):
    """Generated text; everything follows from the options."""

    def __init__(self, train_size: int, valid_size: int, test_size: int, seed: int) -> None:
        self.sizes = {"train": train_size, "valid": valid_size, "test": test_size}
        require(min(self.sizes.values()) >= 1, f"every split needs an example, got sizes {self.sizes}")
        self.seed = seed
        self._language = ToyLanguage(seed)

    def fingerprint(self, split: Split) -> str:
        options = [f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_")]
        code = [file_hash(Path(file)) for file in (__file__, toy_language.__file__)]
        return digest(type(self).__name__, split, *options, *code)


class ToyPairs(Toy):
    """Sources and targets; the splits share no meaning.

    A source has many correct targets, so validation and test have ``references`` of each.
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
        """What is asked of a sentence."""

    def drawn(self, split: Split) -> list[tuple[str, list[str]]]:
        """Sources and their targets; a split is drawn after those before it, whose meanings it must not repeat."""
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
    """From one generated language to the other."""

    @property
    def task(self) -> Task:
        return self._language.translation


class ToyQuestions(ToyPairs):
    """A statement, and a question it answers."""

    @property
    def task(self) -> Task:
        return self._language.question


class ToyParaphrase(ToyPairs):
    """A sentence, and another way to say it."""

    @property
    def task(self) -> Task:
        return self._language.paraphrase


class ToyText(Toy):
    """Documents of 4 to 12 sentences, each about three things; sizes are numbers of documents."""

    def __init__(self, train_size: int = 5_000, valid_size: int = 200, test_size: int = 200, seed: int = 0) -> None:
        super().__init__(train_size, valid_size, test_size, seed)

    def read(self, split: Split) -> Texts:
        rng = random.Random(f"{self.seed}/{split}")
        return ([self._language.document(rng, rng.randint(4, 12)) for _ in range(self.sizes[split])],)
