"""Encoding and decoding of text for one trained model, stored in its run folder.

A codec is all that is needed to use a trained model on new text: no corpus and no file outside the run folder. It is
saved as ``codec.json`` (kind and limits) and ``tokenizer.json``. Both are plain data; loading them executes nothing.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.data.ragged import Ragged, frame
from rdm.data.tokenizer import Tokenizer
from rdm.describe import Described
from rdm.errors import UserError, require
from rdm.files import write_text
from rdm.hashing import short_hash
from rdm.vocab import Vocab

Rows = Sequence[Sequence[int]]
"""Ids of several texts, without special symbols."""


class Codec(Described, ABC):
    """Tokenizer, framing with special symbols and length limit of one model.

    Args:
        tokenizer: text to ids without special symbols, and back.
        max_length: length limit in tokens, see the subclasses.
    """

    kind: ClassVar[str]  # identifies the class in codec.json

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length

    @property
    def vocab(self) -> Vocab:
        return self.tokenizer.vocab

    @abstractmethod
    def encode_corpus(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts as they are stored for training, without a length limit."""

    @abstractmethod
    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode sources typed by a user; raise :class:`UserError` for one that is empty or too long."""

    @abstractmethod
    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode targets to be scored; raise :class:`UserError` for one that is empty or too long."""

    @abstractmethod
    def sources(self, rows: Rows) -> Tensor:
        """Return sources as the ``[B, S]`` ids of a batch."""

    @abstractmethod
    def batch(self, sources: Rows, targets: Rows) -> Batch:
        """Return aligned sources and targets as a batch, without counts."""

    @abstractmethod
    def templates(self, rows: Rows) -> Tensor:
        """Return rows of :meth:`encode_templates` as the targets ``[B, N]`` of a batch."""

    def encode_templates(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode targets with blanks: a ``_`` between spaces is one ``<mask>``."""
        return [self._encode_template(text) for text in texts]

    def _encode_template(self, text: str) -> list[int]:
        row: list[int] = []
        for number, words in enumerate(re.split(r"(?<!\S)_(?!\S)", text)):
            # Byte-level tokens include the space before a word.
            space = " " if number else ""
            row += [self.vocab.mask] * (number > 0) + self.tokenizer.encode([(space + words.strip()).rstrip()])[0]
        require(self.vocab.mask in row, f"template: no blank in {text!r}; write _ for every token to be filled")
        require(self.vocab.unk not in row, f"template: {text!r} has a word that is not in the vocabulary of the model")
        require(len(row) <= self.max_length, f"template: {len(row)} tokens are too many; up to {self.max_length} fit")
        return row

    def decode(self, tokens: Tensor | Rows) -> list[str]:
        """Return the texts of rows of ids; special symbols are left out."""
        return self.tokenizer.decode(tokens.tolist() if isinstance(tokens, Tensor) else tokens)

    def pieces(self, row: Sequence[int]) -> list[str]:
        """Return the token of every id, special symbols included."""
        return self.tokenizer.pieces(row)

    def normalize(self, texts: Sequence[str]) -> list[str]:
        """Encode and decode texts, which removes what the tokenizer cannot represent (case, accents, spacing)."""
        return self.decode(self.tokenizer.encode(texts))

    def fingerprint(self) -> str:
        """Return a hash that changes whenever a text may be encoded or framed differently."""
        return short_hash(self.kind, str(self.max_length), self.tokenizer.fingerprint())

    def save(self, folder: Path) -> None:
        """Write ``codec.json`` and ``tokenizer.json``, each atomically."""
        self.tokenizer.save(folder / "tokenizer.json")
        settings = {"kind": self.kind, "max_length": self.max_length}
        write_text(folder / "codec.json", json.dumps(settings, indent=2) + "\n")

    @staticmethod
    def load(folder: Path) -> "Codec":
        """Read what :meth:`save` wrote."""
        file = folder / "codec.json"
        require(file.is_file(), f"there is no {file}: the run is not complete")
        settings = _read_settings(file)
        return KINDS[settings["kind"]](Tokenizer.load(folder / "tokenizer.json"), settings["max_length"])

    def _encode_within(self, texts: Sequence[str], limit: int, name: str) -> list[list[int]]:
        rows = self.tokenizer.encode(texts)
        for number, row in enumerate(rows, 1):
            require(0 < len(row) <= limit, f"{name} {number} has {len(row)} tokens; 1 to {limit} fit")
        return rows


class PairCodec(Codec):
    """Sources and targets, framed as ``<bos> text <eos>``.

    ``max_length`` limits the ordinary tokens of either side.

    >>> from rdm.data.tokenizer import Words
    >>> codec = PairCodec(Words()(["guten Tag", "good day"]), max_length=8)
    >>> rows = codec.encode_sources(["guten Tag"])
    >>> codec.pieces(codec.sources(rows)[0].tolist())
    ['<bos>', 'guten', 'Tag', '<eos>']
    >>> codec.pieces(codec.templates(codec.encode_templates(["good _"]))[0].tolist())
    ['<bos>', 'good', '<mask>', '<eos>']
    """

    kind = "pairs"

    def encode_corpus(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode(texts)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encode_within(texts, self.max_length, "source")

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encode_within(texts, self.max_length, "target")

    def sources(self, rows: Rows) -> Tensor:
        return frame(Ragged.from_rows(rows), self.vocab)

    def batch(self, sources: Rows, targets: Rows) -> Batch:
        require(len(sources) == len(targets), f"got {len(sources)} sources, but {len(targets)} targets")
        return Batch(self.sources(sources), frame(Ragged.from_rows(targets), self.vocab), torch.arange(len(sources)))

    def templates(self, rows: Rows) -> Tensor:
        return frame(Ragged.from_rows(rows), self.vocab)


class OpenEndedCodec(Codec):
    """Text without a source: a prompt and its continuation.

    ``max_length`` is the length of the window, which holds the prompt and at least one token after it.

    >>> from rdm.data.tokenizer import Words
    >>> codec = OpenEndedCodec(Words()(["once upon a time"]), max_length=8)
    >>> batch = codec.batch(codec.encode_sources(["once upon"]), codec.encode_targets(["a time"]))
    >>> codec.decode(batch.source), codec.decode(batch.target)
    (['once upon'], ['once upon a time'])
    """

    kind = "open_ended"

    def encode_corpus(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode documents, each with ``<eos>`` at its end: they are packed into windows."""
        return [[*row, self.vocab.eos] for row in self.tokenizer.encode(texts)]

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encode_within(texts, self.max_length - 1, "prompt")

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encode_within(texts, self.max_length - 1, "continuation")

    def sources(self, rows: Rows) -> Tensor:
        sizes = sorted({len(row) for row in rows})
        require(len(sizes) == 1, f"prompts that are continued together must be equally long, got {sizes} tokens")
        return torch.tensor([list(row) for row in rows], dtype=torch.int64)

    def batch(self, sources: Rows, targets: Rows) -> Batch:
        """Return prompts with their continuations, which must be equally long: packed text has no padding."""
        require(len(sources) == len(targets), f"got {len(sources)} prompts, but {len(targets)} continuations")
        sizes = sorted({len(row) for row in targets})
        require(len(sizes) == 1, f"continuations that are scored together must be equally long, got {sizes} tokens")
        prefix = self.sources(sources)
        length = prefix.shape[1] + sizes[0]
        require(length <= self.max_length, f"prompt and continuation have {length} tokens; {self.max_length} fit")
        rest = torch.tensor([list(row) for row in targets], dtype=torch.int64)
        return Batch(prefix, torch.cat([prefix, rest], 1), torch.arange(len(sources)))

    def templates(self, rows: Rows) -> Tensor:
        return self.sources(rows)


KINDS: dict[str, type[Codec]] = {each.kind: each for each in (PairCodec, OpenEndedCodec)}
"""The classes that ``codec.json`` can name."""


def _read_settings(file: Path) -> dict[str, Any]:
    """Read and check ``codec.json``."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # neither JSON nor UTF-8 is a ValueError
        raise UserError(f"{file} cannot be read ({type(error).__name__}): use a run folder of train.py") from error
    complete = isinstance(settings, dict) and settings.keys() == {"kind", "max_length"}
    require(complete, f"{file} is not a codec: it needs the keys kind and max_length")
    kind, max_length = settings["kind"], settings["max_length"]
    known = isinstance(kind, str) and kind in KINDS
    require(known, f"{file}: {kind!r} is not a kind of codec; there are {', '.join(KINDS)}")
    positive = type(max_length) is int and max_length >= 1
    require(positive, f"{file}: max_length must be a positive integer, got {max_length!r}")
    return settings
