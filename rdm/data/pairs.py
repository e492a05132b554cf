"""The LightningDataModules for tasks with a source and a target: translation, question generation, paraphrase."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rdm.data.batching import Pairs, frame
from rdm.data.corpus import Corpus, Split
from rdm.data.module import Loading, Questions, TextDataModule
from rdm.data.prepared import Ragged
from rdm.data.tokenizer import TokenizerTrainer
from rdm.errors import UserError, require


class PairsDataModule(TextDataModule):
    """Sources and targets.

    Args:
        max_length: most ordinary tokens on either side; training leaves longer pairs out.
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
        """Training leaves out what is empty or too long; elsewhere that is an error: the score would be another."""
        shorter, longer = self._sizes(split)
        fits = (shorter > 0) & (longer <= self.max_length)
        if split != "train" and not fits.all():
            line = int(fits.argmin())
            sizes = " and ".join(str(column.lengths()[line]) for column in self.prepared(split).columns)
            raise UserError(
                f"line {line + 1} of the {split} split has {sizes} tokens; 1 to {self.max_length} fit: "
                "mend the file, or use a model with a larger model.max_length"
            )
        require(bool(fits.any()), f"no sentence of the {split} split has 1 to {self.max_length} tokens")
        sources, targets = self.prepared(split).columns
        return Pairs(self.vocab, sources, targets, np.flatnonzero(fits))

    def questions(self, split: Split) -> Questions:
        texts, references = self.corpus.read(split)[0], self.corpus.references(split)
        return Questions(self.encode_sources(texts), texts, [self.as_scored(side) for side in references])

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
