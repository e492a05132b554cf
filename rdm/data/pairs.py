"""The LightningDataModule for tasks with a source and a target."""

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rdm.data.batching import Batch, Collate, LengthBatches, Pairs, StepLoader
from rdm.data.corpus import Corpus, Split, Texts
from rdm.data.tokenizer import Tokenizer, TokenizerTrainer
from rdm.errors import UserError, require
from rdm.vocab import Vocab


class PairsDataModule(pl.LightningDataModule):
    """A corpus, a tokenizer made from its training split, and batches of both.

    Args:
        corpus: where the text comes from.
        train_tokenizer: makes a tokenizer from training text; a run keeps its own and hands it back later.
        max_tokens, max_sentences: size of a training batch, see :class:`LengthBatches`.
        eval_sentences: sentences in a validation or test batch.
        max_length: training pairs with a longer side are left out; ordinary tokens.
        seed: of the shuffling.
        num_workers: processes that prepare batches; 0 does it in the training process.
    """

    def __init__(
        self,
        corpus: Corpus,
        train_tokenizer: TokenizerTrainer,
        max_tokens: int | None = 4096,
        max_sentences: int | None = None,
        eval_sentences: int = 100,
        max_length: int = 255,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.corpus, self.train_tokenizer = corpus, train_tokenizer
        self.max_tokens, self.max_sentences, self.eval_sentences = max_tokens, max_sentences, eval_sentences
        self.max_length, self.seed, self.num_workers = max_length, seed, num_workers
        self._tokenizer: Tokenizer | None = None
        self._splits: dict[str, Pairs] = {}
        self._texts: dict[str, Texts] = {}

    def texts(self, split: Split) -> Texts:
        """The text of a split, read once."""
        if split not in self._texts:
            self._texts[split] = self.corpus.read(split)
        return self._texts[split]

    def references(self, split: Split) -> list[list[str]]:
        """One or more lists of reference texts, each aligned with the sources of the split."""
        return self.corpus.references(split)

    @property
    def tokenizer(self) -> Tokenizer:
        """Made from the training split when first asked for, unless a run's own was loaded."""
        if self._tokenizer is None:
            sources, targets = self.texts("train")
            self._tokenizer = self.train_tokenizer(sources + targets)
        return self._tokenizer

    def load_tokenizer(self, path: str | Path) -> None:
        """Use the tokenizer a run saved."""
        self._tokenizer = Tokenizer.load(path)

    @property
    def vocab(self) -> Vocab:
        return self.tokenizer.vocab

    def pairs(self, split: Split) -> Pairs:
        """A split as ids. Training leaves out what is too long; elsewhere that is an error, not a silent change."""
        if split not in self._splits:
            pairs = list(zip(*(self.tokenizer.encode(side) for side in self.texts(split)), strict=True))
            fits = [all(0 < len(side) <= self.max_length for side in pair) for pair in pairs]
            if split == "train":
                pairs = [pair for pair, fit in zip(pairs, fits, strict=True) if fit]
            elif not all(fits):
                sizes = " and ".join(str(len(side)) for side in pairs[fits.index(False)])
                raise UserError(
                    f"line {fits.index(False) + 1} of the {split} split has {sizes} tokens; 1 to {self.max_length} fit"
                )
            require(len(pairs) > 0, f"no sentence of the {split} split has 1 to {self.max_length} tokens")
            self._splits[split] = Pairs([source for source, _ in pairs], [target for _, target in pairs])
        return self._splits[split]

    def fingerprint(self) -> dict[str, str]:
        """A hash of the text of each split that training sees."""
        return {split: sha256(json.dumps(self.texts(split)).encode()).hexdigest()[:16] for split in ("train", "valid")}

    def target_counts(self) -> Tensor:
        """``[V]``: how often each id occurs in the training targets."""
        ids = torch.tensor([index for target in self.pairs("train").targets for index in target])
        return torch.bincount(ids, minlength=self.vocab.size)

    def train_dataloader(self) -> StepLoader:
        trainer = self.trainer
        batches = LengthBatches(
            self.pairs("train").lengths(),
            self.max_tokens,
            self.max_sentences,
            shuffle=True,
            seed=self.seed,
            rank=trainer.global_rank if trainer else 0,
            world_size=trainer.world_size if trainer else 1,
        )
        return StepLoader(self._loader("train", batches), trainer.accumulate_grad_batches if trainer else 1)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.eval_dataloader("valid")

    def test_dataloader(self) -> DataLoader[Batch]:
        return self.eval_dataloader("test")

    def eval_dataloader(self, split: Split) -> DataLoader[Batch]:
        """The sentences of a split, longest first, shared out over ranks."""
        ranks = self.trainer.world_size if self.trainer else 1
        require(len(self.pairs(split)) >= ranks, f"the {split} split has fewer sentences than there are processes")
        batches = LengthBatches(
            self.pairs(split).lengths(),
            max_sentences=self.eval_sentences,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=ranks,
        )
        return self._loader(split, batches)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Source texts as ids; an empty or overlong one is an error."""
        rows = self.tokenizer.encode(texts)
        for number, row in enumerate(rows, 1):
            fits = 0 < len(row) <= self.max_length
            require(fits, f"source {number} has {len(row)} tokens; 1 to {self.max_length} fit")
        return rows

    def sources(self, texts: Sequence[str]) -> Tensor:
        """Source texts as padded ids ``[B, S]``."""
        return Collate(self.vocab).pad(self.encode_sources(texts))

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
        return Collate(self.vocab).pad([row])

    def _loader(self, split: Split, batches: LengthBatches) -> DataLoader[Batch]:
        return DataLoader(
            self.pairs(split),  # type: ignore[arg-type]  # collated into batches
            batch_sampler=batches,
            collate_fn=Collate(self.vocab),
            num_workers=self.num_workers,
        )
