"""The LightningDataModules for tasks with a source and a target: translation, question generation, paraphrase."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rdm.data.batching import Pairs, frame
from rdm.data.corpus import Corpus, Split
from rdm.data.module import Loading, Questions, TextDataModule
from rdm.data.prepared import Ragged
from rdm.data.tokenizer import TokenizerTrainer
from rdm.errors import require


class PairsDataModule(TextDataModule):
    """Sources and targets.

    Args:
        max_length: most ordinary tokens on either side; longer pairs are left out, longer sources cut.
    """

    def __init__(
        self, corpus: Corpus, train_tokenizer: TokenizerTrainer, loading: Loading, max_length: int = 255
    ) -> None:
        super().__init__(corpus, train_tokenizer, loading)
        self.max_length = max_length

    def _sizes(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of the shorter and of the longer side of every pair."""
        sizes = np.stack([column.lengths() for column in self.prepared(split).columns])
        return sizes.min(0), sizes.max(0)

    def left_out(self, split: Split) -> dict[str, int]:
        shorter, longer = self._sizes(split)
        empty, too_long = shorter == 0, (shorter > 0) & (longer > self.max_length)
        return {
            "left out, empty": int(empty.sum()),
            f"left out, longer than {self.max_length} tokens": int(too_long.sum()),
        }

    def examples(self, split: Split) -> Pairs:
        """The pairs with 1 to ``max_length`` tokens on either side; :meth:`left_out` counts the others."""
        shorter, longer = self._sizes(split)
        fits = (shorter > 0) & (longer <= self.max_length)
        require(bool(fits.any()), f"no pair of the {split} split has 1 to {self.max_length} tokens on either side")
        sources, targets = self.prepared(split).columns
        multiple, widest = self.loading.pad_to_multiple, self.max_length + 2
        return Pairs(self.vocab, sources, targets, np.flatnonzero(fits), multiple, widest)

    def questions(self, split: Split) -> Questions:
        """Every source of the split: a score over fewer would be another score, so a long one is cut, and counted."""
        texts, references = self.corpus.read(split)[0], self.corpus.references(split)
        rows = self.tokenizer.encode(texts)
        for number, row in enumerate(rows, 1):
            require(len(row) > 0, f"line {number} of the {split} split has an empty source: mend or remove it")
        return Questions(
            rows=[row[: self.max_length] for row in rows],
            sources=texts,
            references=[self.as_scored(side) for side in references],
            cut=[len(row) > self.max_length for row in rows],
        )

    def as_scored(self, references: list[str]) -> list[str]:
        """References in the form outputs are compared with: as they are."""
        return references

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        rows = self.tokenizer.encode(texts)
        for number, row in enumerate(rows, 1):
            fits = 0 < len(row) <= self.max_length
            require(fits, f"source {number} has {len(row)} tokens; 1 to {self.max_length} fit")
        return rows

    def sources(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return frame(Ragged.of(rows), self.vocab)

    def template(self, text: str) -> Tensor:
        """A target with blanks as ids ``[1, N]``: a ``_`` that stands alone is a ``<mask>``, one token to be filled."""
        row: list[int] = []
        for number, words in enumerate(re.split(r"(?<!\S)_(?!\S)", text)):
            # Byte-level pieces know whether a space stands before them.
            space = " " if number else ""
            row += [self.vocab.mask] * (number > 0) + self.tokenizer.encode([(space + words.strip()).rstrip()])[0]
        require(self.vocab.mask in row, f"template: no blank in {text!r}; write _ for every token to be filled")
        require(self.vocab.unk not in row, f"template: {text!r} has a word that is not in the vocabulary of the model")
        require(len(row) <= self.max_length, f"template: {len(row)} tokens are too many; up to {self.max_length} fit")
        return self.sources([row])


class TranslationDataModule(PairsDataModule):
    """One language to another; outputs are compared with the references letter by letter."""


class QuestionGenerationDataModule(PairsDataModule):
    """A passage, and a question it answers.

    WordPiece has no capitals and spaces of its own, so references go through it too, as in DiffuSeq's protocol.
    """

    def as_scored(self, references: list[str]) -> list[str]:
        return self.tokenizer.decode(self.tokenizer.encode(references))


class ParaphraseDataModule(QuestionGenerationDataModule):
    """A sentence, and another that means the same."""
