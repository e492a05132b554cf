"""LightningDataModules for tasks with a source: translation, question generation, paraphrase."""

import numpy as np
from numpy.typing import NDArray

from rdm.data.codec import PairCodec
from rdm.data.corpus import Corpus, Split
from rdm.data.examples import Pairs
from rdm.data.loading import Loading
from rdm.data.module import TextDataModule
from rdm.data.questions import EvaluationQuestions
from rdm.data.tokenizer import Tokenizer, TokenizerTrainer
from rdm.errors import UserError, require


class PairsDataModule(TextDataModule):
    """Sources and targets.

    Args:
        max_length: limit of the ordinary tokens on either side. Longer pairs are left out of training; in evaluation
            longer sources are truncated.
    """

    def __init__(
        self, corpus: Corpus, train_tokenizer: TokenizerTrainer, loading: Loading, max_length: int = 255
    ) -> None:
        super().__init__(corpus, train_tokenizer, loading)
        self.max_length = max_length

    def make_codec(self, tokenizer: Tokenizer) -> PairCodec:
        return PairCodec(tokenizer, self.max_length)

    def _side_lengths(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tokens of the shorter and of the longer side of every pair."""
        lengths = np.stack([column.lengths() for column in self.prepared(split).columns])
        return lengths.min(0), lengths.max(0)

    def left_out(self, split: Split) -> dict[str, int]:
        (shorter, longer), limit = self._side_lengths(split), self.codec.max_length
        empty, too_long = shorter == 0, (shorter > 0) & (longer > limit)
        return {
            "left out, empty": int(empty.sum()),
            f"left out, longer than {limit} tokens": int(too_long.sum()),
        }

    def examples(self, split: Split) -> Pairs:
        """Return the pairs with 1 to ``max_length`` tokens on either side; see :meth:`left_out`."""
        (shorter, longer), limit = self._side_lengths(split), self.codec.max_length
        fits = (shorter > 0) & (longer <= limit)
        advice = "raise model.max_length, or check the files"
        require(bool(fits.any()), f"no pair of the {split} split has 1 to {limit} tokens on either side: {advice}")
        sources, targets = self.prepared(split).columns
        return Pairs(self.vocab, sources, targets, np.flatnonzero(fits), self.loading.pad_to_multiple, limit + 2)

    def questions(self, split: Split) -> EvaluationQuestions:
        """Return every source of the split, so that scores are comparable; long ones are truncated."""
        texts, references = self.corpus.read(split)[0], self.corpus.references(split)
        rows, limit = self.codec.tokenizer.encode(texts), self.codec.max_length
        empty = next((index for index, row in enumerate(rows) if not row), None)
        if empty is not None:
            location = self.corpus.locate(split, empty)
            raise UserError(f"{location} of the {split} split has an empty source: correct or remove it")
        return EvaluationQuestions(
            rows=[row[:limit] for row in rows],
            sources=texts,
            references=[self.scored_form(side) for side in references],
            cut=[len(row) > limit for row in rows],
        )

    def scored_form(self, references: list[str]) -> list[str]:
        """Return references in the form that outputs are compared with: unchanged."""
        return references


class TranslationDataModule(PairsDataModule):
    """Translation; outputs are compared with the unchanged references."""


class QuestionGenerationDataModule(PairsDataModule):
    """A passage and a question that it answers.

    WordPiece loses case and spacing, so references are encoded and decoded too, as in DiffuSeq's protocol.
    """

    def scored_form(self, references: list[str]) -> list[str]:
        return self.codec.normalize(references)


class ParaphraseDataModule(QuestionGenerationDataModule):
    """A sentence and a paraphrase of it."""
