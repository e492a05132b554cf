"""The base class of the LightningDataModules: a corpus, prepared splits and loaders."""

from abc import ABC, abstractmethod
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import tokenizers
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rdm.data import (
    array_file,
    codec,
    corpus,
    documents,
    hub,
    prepared,
    ragged,
    reading,
    selection,
    sentencepiece_model,
    tables,
    text_parts,
    tokenizer,
    tokenizer_file,
)
from rdm.data.batch import Batch
from rdm.data.cache import build_once, load_cached
from rdm.data.codec import Codec
from rdm.data.corpus import Corpus, Split
from rdm.data.examples import Examples
from rdm.data.length_batches import LengthBatches
from rdm.data.loading import Loading, divide_budget
from rdm.data.prepared import Prepared
from rdm.data.questions import EvaluationQuestions
from rdm.data.step_loader import Count, StepLoader
from rdm.data.tokenizer import Tokenizer, TokenizerTrainer
from rdm.errors import require
from rdm.hashing import file_hash, short_hash
from rdm.vocab import Vocab

# Part of every cache key: a change of the code that reads or encodes text invalidates the cache.
MODULES = (
    array_file, codec, corpus, documents, hub, prepared, ragged, reading, selection, sentencepiece_model, tables,
    text_parts, tokenizer, tokenizer_file,
)  # fmt: skip
CODE = short_hash(tokenizers.__version__, *(file_hash(Path(str(module.__file__))) for module in MODULES))

OVERLAP_CHUNK = 2**20  # hashes that are compared at a time


class TextDataModule(pl.LightningDataModule, ABC):
    """A corpus, encoded with the codec of the model, and its batches.

    Text is encoded once and cached on disk, keyed by hashes of the text and of the tokenizer.

    Args:
        corpus: the text.
        train_tokenizer: makes a tokenizer from the training split; not used after :meth:`use_codec`.
        loading: how text becomes batches.

    Attributes:
        count: the denominators of a training batch's losses. Set it to ``system.counts`` before training; the default
            counts ``sentences`` and target ``tokens``.
    """

    open_ended = False  # whether the corpus has text only, without sources

    def __init__(self, corpus: Corpus, train_tokenizer: TokenizerTrainer, loading: Loading) -> None:
        super().__init__()
        self.corpus, self.train_tokenizer, self.loading = corpus, train_tokenizer, loading
        self.cache = Path(loading.cache)
        self.count: Count = self._count_tokens
        self._codec: Codec | None = None
        self._prepared: dict[Split, Prepared] = {}
        self._fingerprints: dict[Split, str] = {}

    # Differs between the task families.

    @abstractmethod
    def make_codec(self, tokenizer: Tokenizer) -> Codec:
        """Return the codec of a model that is trained with this tokenizer."""

    @abstractmethod
    def examples(self, split: Split) -> Examples:
        """Return the usable examples of a split."""

    @abstractmethod
    def left_out(self, split: Split) -> dict[str, int]:
        """Count what is not used of a split, by reason."""

    @abstractmethod
    def questions(self, split: Split) -> EvaluationQuestions:
        """Return the sources of a split to decode in evaluation, with their references."""

    # Codec.

    @property
    def codec(self) -> Codec:
        """The codec given to :meth:`use_codec`, by default one with a tokenizer trained on the training split."""
        if self._codec is None:
            name = short_hash(CODE, self._fingerprint("train"), self.train_tokenizer.fingerprint())
            folder = build_once(self.cache / "tokenizers" / name, self._build_tokenizer)
            trained = load_cached(folder, lambda folder: Tokenizer.load(folder / "tokenizer.json"))
            self._codec = self.make_codec(trained)
        return self._codec

    def _build_tokenizer(self, folder: Path) -> None:
        self.train_tokenizer(chain.from_iterable(self.corpus.stream("train"))).save(folder / "tokenizer.json")

    def use_codec(self, codec: Codec) -> None:
        """Use the codec of a trained model instead of training a tokenizer, whose files are not needed then."""
        self._codec = codec

    @property
    def vocab(self) -> Vocab:
        return self.codec.vocab

    # Splits.

    def prepared(self, split: Split) -> Prepared:
        """Return a split as ids, encoding it unless it is cached."""
        if split not in self._prepared:
            encoding = (self.codec.tokenizer.fingerprint(), self.codec.kind)
            folder = self.cache / "splits" / short_hash(CODE, self._fingerprint(split), *encoding)
            shards = folder.with_name(f".{folder.name}.shards")

            def build(scratch: Path) -> None:
                prepared.write_split(scratch, shards, self.corpus, split, self.codec.encode_corpus)

            build_once(folder, build, shards)
            self._prepared[split] = load_cached(folder, Prepared.load)
        return self._prepared[split]

    def _fingerprint(self, split: Split) -> str:
        """Return the fingerprint of the text of a split, which is hashed once: it may be large."""
        if split not in self._fingerprints:
            self._fingerprints[split] = self.corpus.fingerprint(split)
        return self._fingerprints[split]

    def prepare_data(self) -> None:
        """Encode the splits that training reads, unless they are cached."""
        for split in ("train", "valid"):
            self.prepared(split)

    @cached_property
    def train_examples(self) -> Examples:
        return self.examples("train")

    def fingerprint(self) -> dict[str, str]:
        """Return hashes of the text of the training and validation splits and of the tokenizer."""
        return {
            "train": self._fingerprint("train"),
            "valid": self._fingerprint("valid"),
            "tokenizer": self.codec.tokenizer.fingerprint(),
        }

    def overlap(self, split: Split, other: Split = "train") -> int:
        """Count the examples of ``split`` whose text is also an example of ``other``."""
        hashes, counts = np.unique(self.prepared(split).hashes, return_counts=True)
        shared = np.zeros(len(hashes), dtype=bool)
        others = self.prepared(other).hashes
        for start in range(0, len(others), OVERLAP_CHUNK):
            shared |= np.isin(hashes, others[start : start + OVERLAP_CHUNK])
        return int(counts[shared].sum())

    def summary(self) -> list[str]:
        """Return one line per split: examples, what is left out or held out, overlap with the training split."""
        lines = []
        for split in ("train", "valid"):
            reasons = [f"{count:,} {reason}" for reason, count in self.left_out(split).items() if count]
            reasons += self.corpus.remarks(split)
            if split != "train" and (shared := self.overlap(split)):
                reasons.append(f"{shared:,} texts also in train")
            lines.append(f"{split}: {len(self.examples(split)):,} examples" + "".join(f", {each}" for each in reasons))
        return lines

    def target_counts(self) -> Tensor:
        """Return the frequency of each id in the training targets, ``[V]``."""
        counts = np.zeros(self.vocab.size, dtype=np.int64)
        for ids in self.train_examples.target_ids():
            counts += np.bincount(ids, minlength=self.vocab.size)
        return torch.from_numpy(counts)

    def check(self) -> None:
        """Raise :class:`UserError` before training for data that would stop it later."""
        self.train_dataloader()
        self.val_dataloader()
        self.questions("valid")

    # Loaders.

    def train_dataloader(self) -> StepLoader:
        rank, world_size = self._rank_and_world_size()
        accumulate = self.trainer.accumulate_grad_batches if self.trainer else 1
        batches = LengthBatches(
            self.train_examples.lengths(),
            divide_budget(self.loading.max_tokens, world_size * accumulate, "data.max_tokens"),
            divide_budget(self.loading.max_sentences, world_size * accumulate, "data.max_sentences"),
            shuffle=True,
            seed=self.loading.seed,
            rank=rank,
            world_size=world_size,
        )
        return StepLoader(self._loader(self.train_examples, batches), accumulate, self.count)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.eval_dataloader("valid")

    def eval_dataloader(self, split: Split) -> DataLoader[Batch]:
        """Return the examples of a split, longest first, partitioned over ranks."""
        rank, world_size = self._rank_and_world_size()
        examples = self.examples(split)
        require(len(examples) >= world_size, f"the {split} split has fewer examples than there are processes")
        batches = LengthBatches(
            examples.lengths(), max_sentences=self.loading.eval_sentences, rank=rank, world_size=world_size
        )
        return self._loader(examples, batches)

    def _rank_and_world_size(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def _loader(self, examples: Examples, batches: LengthBatches) -> DataLoader[Batch]:
        return DataLoader(
            examples,
            sampler=batches,
            batch_size=None,  # an index of Examples is a whole batch already
            collate_fn=_identity,
            num_workers=self.loading.num_workers,
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
        )

    def _count_tokens(self, batch: Batch) -> dict[str, Tensor]:
        return {"sentences": torch.tensor(len(batch.target)), "tokens": (batch.target != self.vocab.pad).sum()}


def _identity(batch: Any) -> Any:
    return batch
