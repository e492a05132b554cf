"""An in-memory corpus, and data modules for tests."""

from pathlib import Path
from typing import Any

from rdm.data.corpus import Corpus, Split, Texts
from rdm.data.loading import Loading
from rdm.data.open_ended import OpenEndedDataModule
from rdm.data.pairs import PairsDataModule
from rdm.data.tokenizer import TokenizerTrainer, Words
from rdm.hashing import short_hash


class InMemoryCorpus(Corpus):
    """Text given as lists; ``reads`` records the splits that were read, in order."""

    def __init__(self, train: Texts, valid: Texts | None = None, test: Texts | None = None) -> None:
        self.texts = {"train": train, "valid": valid or train, "test": test or train}
        self.reads: list[str] = []

    def read(self, split: Split) -> Texts:
        self.reads.append(split)
        return self.texts[split]

    def fingerprint(self, split: Split) -> str:
        return short_hash(*(short_hash(*column) for column in self.texts[split]))


def pairs(
    cache: Path,
    corpus: Corpus,
    trainer: TokenizerTrainer | None = None,
    max_length: int = 31,
    kind: type[PairsDataModule] = PairsDataModule,
    **loading: Any,
) -> PairsDataModule:
    return kind(corpus, trainer or Words(), Loading(cache=str(cache), **loading), max_length)


def open_ended(
    cache: Path, corpus: Corpus, length: int, prompt: int, continuation: int = 128, **loading: Any
) -> OpenEndedDataModule:
    options = {"max_tokens": None, "max_sentences": 4, **loading}
    return OpenEndedDataModule(corpus, Words(), Loading(cache=str(cache), **options), length, prompt, continuation)
