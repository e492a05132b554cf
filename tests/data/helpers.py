"""An in-memory corpus, data modules, and clauses of the generated language for tests."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rdm.data import toy_words
from rdm.data.corpus import Corpus, Split, Texts
from rdm.data.loading import Loading
from rdm.data.open_ended import OpenEndedDataModule
from rdm.data.pairs import PairsDataModule
from rdm.data.tokenizer import TokenizerTrainer, Words
from rdm.data.toy_language import Clause, ToyLanguage
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


def draw_clauses(language: ToyLanguage, seed: int) -> list[Clause]:
    """A sentence of one clause, drawn with a seed."""
    return [language._clause(random.Random(seed), short=False)]


def has_noun(words: Iterable[str], synonyms: Iterable[str]) -> bool:
    """Whether a noun or its plural is among the words."""
    return any(word in (noun, toy_words.plural(noun)) for word in words for noun in synonyms)
