"""What the LightningDataModules of all task families share: a tokenizer, prepared splits, loaders."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import tokenizers
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rdm.data import corpus, hub, prepared, tokenizer
from rdm.data.batching import Batch, Examples, LengthBatches, StepLoader
from rdm.data.cache import digest, file_hash, once, read_back
from rdm.data.corpus import Corpus, Split
from rdm.data.prepared import Prepared
from rdm.data.tokenizer import Tokenizer, TokenizerTrainer
from rdm.errors import UserError, require
from rdm.vocab import Vocab

# What was read or prepared by other code is prepared again.
MODULES = (corpus, hub, prepared, tokenizer)
CODE = digest(tokenizers.__version__, *(file_hash(Path(str(module.__file__))) for module in MODULES))


@dataclass(frozen=True)
class Questions:
    """What a model is asked in evaluation, and what would be right."""

    rows: list[list[int]]  # sources as ids, without special symbols
    sources: list[str]  # the same, to be read by people
    references: list[list[str]]  # one or more texts a source: lists, each aligned with the sources
    cut: list[bool]  # which sources are too long for the model, and asked without their end

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int | None) -> "Questions":
        """The first ``count`` of them; None means all."""
        sides = [side[:count] for side in self.references]
        return Questions(self.rows[:count], self.sources[:count], sides, self.cut[:count])


@dataclass(frozen=True)
class Loading:
    """How text becomes batches.

    Args:
        max_tokens, max_sentences: size of an optimiser step, see :class:`LengthBatches`; it is shared out over devices
            and accumulated batches.
        eval_sentences: sentences in a validation or test batch.
        pad_to_multiple: batches of sentences are padded to a multiple of so many tokens.
        seed: of the shuffling.
        num_workers: processes that build batches; 0 does it in the training process.
        cache: folder of encoded text and tokenizers.
    """

    max_tokens: int | None = 4096
    max_sentences: int | None = None
    eval_sentences: int = 100
    pad_to_multiple: int = 1
    seed: int = 0
    num_workers: int = 0
    cache: str = "data/cache"

    def __post_init__(self) -> None:
        multiple = self.pad_to_multiple
        require(multiple >= 1, f"data.pad_to_multiple must be at least 1, got {multiple}")
        require(self.num_workers >= 0, f"data.num_workers must be 0 or above, got {self.num_workers}")
        require(
            self.eval_sentences >= 1,
            f"data.module.loading.eval_sentences must be at least 1, got {self.eval_sentences}",
        )


class TextDataModule(pl.LightningDataModule, ABC):
    """A corpus, a tokenizer made from its training split, and batches of both.

    Text is encoded once and kept on disk, under a name that follows from the text and the tokenizer.

    Args:
        corpus: where the text comes from.
        train_tokenizer: makes a tokenizer from training text; a run keeps its own and hands it back later.
        loading: how text becomes batches.
    """

    open_ended = False  # whether there is text alone, without sources
    closes = False  # whether <eos> is stored after every text

    def __init__(self, corpus: Corpus, train_tokenizer: TokenizerTrainer, loading: Loading) -> None:
        super().__init__()
        self.corpus, self.train_tokenizer, self.loading = corpus, train_tokenizer, loading
        self.cache = Path(loading.cache)
        self._tokenizer: Tokenizer | None = None
        self._prepared: dict[Split, Prepared] = {}

    # Text to ids.

    @property
    def tokenizer(self) -> Tokenizer:
        """Made from the training split when first asked for, unless a run's own was loaded."""
        if self._tokenizer is None:
            name = digest(CODE, self.corpus.fingerprint("train"), self.train_tokenizer.fingerprint())
            folder = once(self.cache / "tokenizers" / name, self._make_tokenizer)
            self._tokenizer = read_back(folder, lambda folder: Tokenizer.load(folder / "tokenizer.json"))
        return self._tokenizer

    def _make_tokenizer(self, folder: Path) -> None:
        texts = [text for column in self.corpus.read("train") for text in column]
        self.train_tokenizer(texts).save(folder / "tokenizer.json")

    def load_tokenizer(self, path: str | Path) -> None:
        """Use the tokenizer a run saved."""
        self._tokenizer = Tokenizer.load(path)

    @property
    def vocab(self) -> Vocab:
        return self.tokenizer.vocab

    # The three members below are the interface of the codec until there is a class for it.

    @property
    def codec(self) -> "TextDataModule":
        return self

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return self.tokenizer.decode(rows)

    def pieces(self, row: Sequence[int]) -> list[str]:
        return self.tokenizer.pieces(row)

    def prepared(self, split: Split) -> Prepared:
        """A split as ids, encoded if that has not been done before."""
        if split not in self._prepared:
            parts = (CODE, self.corpus.fingerprint(split), self.tokenizer.fingerprint(), str(self.closes))
            place = self.cache / "splits" / digest(*parts)
            once(place, lambda folder: prepared.write(folder, self.corpus.read(split), self._encode, split))
            self._prepared[split] = read_back(place, Prepared.load)
        return self._prepared[split]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows = self.tokenizer.encode(texts)
        return [[*row, self.vocab.eos] for row in rows] if self.closes else rows

    def prepare_data(self) -> None:
        for split in ("train", "valid"):
            self.prepared(split)

    # What the task families say.

    @abstractmethod
    def examples(self, split: Split) -> Examples:
        """A split, ready to be cut into batches."""

    @abstractmethod
    def left_out(self, split: Split) -> dict[str, int]:
        """What of the split is not used, and why: counts by reason."""

    @abstractmethod
    def questions(self, split: Split) -> Questions:
        """What to ask a model in evaluation."""

    @abstractmethod
    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts typed by a user, as rows of ids; one that cannot be used is an error."""

    @abstractmethod
    def sources(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of ids as the sources ``[B, S]`` of a batch."""

    def template(self, text: str) -> Tensor:
        """A target with blanks, typed by a user."""
        raise UserError("template: only targets of tasks with a source can have blanks")

    # What follows from it.

    @cached_property
    def train_examples(self) -> Examples:
        return self.examples("train")

    def fingerprint(self) -> dict[str, str]:
        """Of the text of each split that training sees, and of the tokenizer."""
        return {
            "train": self.corpus.fingerprint("train"),
            "valid": self.corpus.fingerprint("valid"),
            "tokenizer": self.tokenizer.fingerprint(),
        }

    def overlap(self, split: Split, other: Split = "train") -> int:
        """How many examples of ``split`` stand, word for word, in ``other`` as well."""
        return int(np.isin(self.prepared(split).hashes, self.prepared(other).hashes).sum())

    def summary(self) -> list[str]:
        """A line a split: what there is, what was left out, and what is also in the training text."""
        lines = []
        for split in ("train", "valid"):
            reasons = [f"{count:,} {reason}" for reason, count in self.left_out(split).items() if count]
            if split != "train" and (shared := self.overlap(split)):
                reasons.append(f"{shared:,} texts also in train")
            lines.append(f"{split}: {len(self.examples(split)):,} examples" + "".join(f", {each}" for each in reasons))
        return lines

    def target_counts(self) -> Tensor:
        """``[V]``: how often each id occurs in the training targets."""
        return torch.from_numpy(np.bincount(self.train_examples.target_ids(), minlength=self.vocab.size))

    def check(self) -> None:
        """Raise a :class:`UserError` now for what would otherwise end a run that has begun."""
        self.train_dataloader()
        self.val_dataloader()
        self.questions("valid")

    def train_dataloader(self) -> StepLoader:
        rank, ranks = self._place()
        accumulate = self.trainer.accumulate_grad_batches if self.trainer else 1
        batches = LengthBatches(
            self.train_examples.lengths(),
            share(self.loading.max_tokens, ranks * accumulate, "data.max_tokens"),
            share(self.loading.max_sentences, ranks * accumulate, "data.max_sentences"),
            shuffle=True,
            seed=self.loading.seed,
            rank=rank,
            world_size=ranks,
        )
        return StepLoader(self._loader(self.train_examples, batches), accumulate)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.eval_dataloader("valid")

    def test_dataloader(self) -> DataLoader[Batch]:
        return self.eval_dataloader("test")

    def eval_dataloader(self, split: Split) -> DataLoader[Batch]:
        """The examples of a split, longest first, shared out over ranks."""
        rank, ranks = self._place()
        examples = self.examples(split)
        require(len(examples) >= ranks, f"the {split} split has fewer examples than there are processes")
        batches = LengthBatches(
            examples.lengths(), max_sentences=self.loading.eval_sentences, rank=rank, world_size=ranks
        )
        return self._loader(examples, batches)

    def _place(self) -> tuple[int, int]:
        """This process and how many there are."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def _loader(self, examples: Examples, batches: LengthBatches) -> DataLoader[Batch]:
        # No batching by the loader: an index is a whole batch already.
        return DataLoader(
            examples,
            sampler=batches,
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=self.loading.num_workers,
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
        )


def share(limit: int | None, parts: int, key: str) -> int | None:
    """What each of ``parts`` batches gets of a step; None is no limit."""
    require(limit is None or limit >= parts, f"{key}={limit} is too little for {parts} batches (devices, accumulation)")
    return None if limit is None else limit // parts


def _as_it_is(batch: Any) -> Any:
    return batch
