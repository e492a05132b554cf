"""The LightningDataModule for text without a source: documents, packed end to end."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rdm.data.batching import Windows
from rdm.data.corpus import Corpus, Split
from rdm.data.module import Loading, Questions, TextDataModule
from rdm.data.tokenizer import TokenizerTrainer
from rdm.errors import require


class OpenEndedDataModule(TextDataModule):
    """Documents with ``<eos>`` after each, end to end, cut into windows of ``length`` tokens.

    Training and validation windows have nothing given. In evaluation a model continues the first ``prompt`` tokens of a
    window, and the tokens that follow there are the reference.

    Args:
        length: tokens in a window.
        prompt: tokens given in evaluation.
        continuation: tokens of the reference, at most; it ends with its document.
    """

    open_ended = True
    closes = True

    def __init__(
        self,
        corpus: Corpus,
        train_tokenizer: TokenizerTrainer,
        loading: Loading,
        length: int = 256,
        prompt: int = 32,
        continuation: int = 128,
    ) -> None:
        super().__init__(corpus, train_tokenizer, loading)
        require(0 < prompt < length, f"data.prompt must lie between 0 and data.length={length}, got {prompt}")
        require(continuation >= 1, f"data.module.continuation must be at least 1, got {continuation}")
        self.length, self.prompt, self.continuation = length, prompt, continuation

    def windows(self, split: Split) -> NDArray[np.integer]:
        """``[windows, length]``, a view of the prepared text."""
        ids = self.prepared(split).columns[0].ids
        count = len(ids) // self.length
        require(count > 0, f"the {split} split has {len(ids)} tokens, fewer than data.length={self.length}")
        return ids[: count * self.length].reshape(count, self.length)

    def left_out(self, split: Split) -> dict[str, int]:
        return {"tokens left out at the end": len(self.prepared(split).columns[0].ids) % self.length}

    def examples(self, split: Split) -> Windows:
        return Windows(self.vocab, self.windows(split))

    def questions(self, split: Split) -> Questions:
        """The windows in which the prompt and one token after it belong to one document."""
        windows = self.windows(split)
        windows = windows[~(windows[:, : self.prompt + 1] == self.vocab.eos).any(1)]
        require(len(windows) > 0, f"no window of the {split} split begins inside a document")
        follows = windows[:, self.prompt : self.prompt + self.continuation]
        ended = (follows == self.vocab.eos).cumsum(1) > 0
        references = self.tokenizer.decode(np.where(ended, self.vocab.pad, follows).tolist())
        rows = windows[:, : self.prompt].tolist()
        return Questions(rows, self.tokenizer.decode(rows), [references], cut=[False] * len(rows))

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        rows = self.tokenizer.encode(texts)
        for number, row in enumerate(rows, 1):
            require(
                0 < len(row) < self.length,
                f"prompt {number} has {len(row)} tokens; 1 to {self.length - 1} fit",
            )
        return rows

    def sources(self, rows: Sequence[Sequence[int]]) -> Tensor:
        sizes = sorted({len(row) for row in rows})
        require(len(sizes) == 1, f"prompts that are continued together must be equally long, got {sizes} tokens")
        return torch.tensor([list(row) for row in rows])
