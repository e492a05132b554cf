"""The LightningDataModule for text without a source: documents packed into windows."""

import numpy as np
from numpy.typing import NDArray

from rdm.data.codec import OpenEndedCodec
from rdm.data.corpus import Corpus, Split
from rdm.data.examples import Windows
from rdm.data.loading import Loading
from rdm.data.module import TextDataModule
from rdm.data.questions import EvaluationQuestions
from rdm.data.tokenizer import Tokenizer, TokenizerTrainer
from rdm.errors import require


class OpenEndedDataModule(TextDataModule):
    """Documents with ``<eos>`` after each, concatenated and cut into windows of ``length`` tokens.

    Training and validation batches have no prefix. In evaluation a model continues the first ``prompt`` tokens of a
    window, and the tokens after them are the reference.

    Args:
        length: tokens in a window.
        prompt: tokens given in evaluation.
        continuation: maximum tokens of the reference, which ends at the end of its document.
    """

    open_ended = True

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

    def make_codec(self, tokenizer: Tokenizer) -> OpenEndedCodec:
        return OpenEndedCodec(tokenizer, self.length)

    def windows(self, split: Split) -> NDArray[np.integer]:
        """Return the windows ``[windows, length]`` as a view of the prepared text."""
        ids = self.prepared(split).columns[0].ids
        count = len(ids) // self.length
        require(count > 0, f"the {split} split has {len(ids)} tokens, fewer than data.length={self.length}")
        return ids[: count * self.length].reshape(count, self.length)

    def left_out(self, split: Split) -> dict[str, int]:
        return {"tokens left out at the end": len(self.prepared(split).columns[0].ids) % self.length}

    def examples(self, split: Split) -> Windows:
        return Windows(self.windows(split))

    def questions(self, split: Split) -> EvaluationQuestions:
        """Return the windows whose prompt and the token after it belong to one document."""
        windows = self.windows(split)
        windows = windows[~(windows[:, : self.prompt + 1] == self.vocab.eos).any(1)]
        require(len(windows) > 0, f"no window of the {split} split begins inside a document")
        follows = windows[:, self.prompt : self.prompt + self.continuation]
        ended = (follows == self.vocab.eos).cumsum(1) > 0
        references = self.codec.decode(np.where(ended, self.vocab.pad, follows).tolist())
        rows = windows[:, : self.prompt].tolist()
        return EvaluationQuestions(rows, self.codec.decode(rows), [references], cut=[False] * len(rows))
