"""Text to ids and back, kept in one JSON file that travels with the run."""

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from rdm.data.cache import digest, file_hash
from rdm.data.corpus import read_lines
from rdm.describe import in_words
from rdm.errors import UserError, require
from rdm.files import write
from rdm.vocab import Vocab

PAD, MASK, BOS, EOS, UNK = SPECIALS = ("<pad>", "<mask>", "<bos>", "<eos>", "<unk>")
BERT_SPECIALS = ("[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]")
"""What a BERT vocabulary calls them, in the same order."""
SPELLED = rf"(?<!\S)({'|'.join(SPECIALS)})(?!\S)"
"""A word that spells a special symbol."""


class Tokenizer:
    """A trained tokenizer and the :class:`Vocab` it stands for."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        backend.encode_special_tokens = True  # text that spells "<mask>" is text
        names = {name: backend.token_to_id(name) for name in SPECIALS}
        ids = {name.strip("<>"): index for name, index in names.items() if index is not None}
        require(len(ids) == len(SPECIALS), f"a tokenizer needs the symbols {' '.join(SPECIALS)}")
        self.vocab = Vocab(size=backend.get_vocab_size(), **ids)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        require(Path(path).is_file(), f"no tokenizer at {path}")
        try:
            return cls(Backend.from_file(str(path)))
        except Exception as error:  # the library raises nothing narrower
            raise UserError(f"{path} is not a tokenizer: {error}") from error

    def save(self, path: str | Path) -> None:
        # Not by the library: it writes in place, and does not say that a disk is full with an OSError.
        write(Path(path), self.backend.to_str(pretty=True))

    def fingerprint(self) -> str:
        """Another word for another tokenizer."""
        return digest(self.backend.to_str())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of every text, without special symbols; all cores share the work."""
        try:
            encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError as error:  # all that the library says of it
            raise UserError("a text has half a character (a surrogate alone): it was not UTF-8") from error
        return [encoding.ids for encoding in encodings]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The texts of rows of ids; special symbols leave no trace."""
        return self.backend.decode_batch([list(row) for row in rows], skip_special_tokens=True)

    def pieces(self, row: Sequence[int]) -> list[str]:
        """Every id of a row as it stands, specials included; of bytes, the text they spell, with ``▁`` for a space."""
        names = [str(self.backend.id_to_token(index)) for index in row]
        if not isinstance(self.backend.decoder, decoders.ByteLevel):
            return names
        texts = [self.backend.decoder.decode([name]).replace(" ", "▁") for name in names]
        # A letter may be cut in two: half of it spells nothing.
        return [name if "\ufffd" in text else text for name, text in zip(names, texts, strict=True)]


class TokenizerTrainer(ABC):
    """Makes a tokenizer from text."""

    @abstractmethod
    def __call__(self, texts: Sequence[str]) -> Tokenizer: ...

    def fingerprint(self) -> str:
        """Another word whenever the same text gives another tokenizer."""
        return digest(in_words(self))


class Words(TokenizerTrainer):
    """One id for every word of the text, split at white space; a word that spells a special symbol is unknown."""

    def __call__(self, texts: Sequence[str]) -> Tokenizer:
        backend = Backend(models.WordLevel(unk_token=UNK))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordLevelTrainer(vocab_size=2**31, special_tokens=list(SPECIALS), show_progress=False)
        backend.train_from_iterator((re.sub(SPELLED, "", text) for text in texts), trainer)
        backend.normalizer = normalizers.Replace(Regex(SPELLED), UNK)
        return Tokenizer(backend)


class PreTokenized(Words):
    """For text that is cut into pieces already, ``un@@ like@@ ly`` (subword-nmt): one id a piece, joined when decoded.

    The pieces are used as they are, so that scores follow the protocol of whoever made them. The decoded text is still
    tokenised as the given one is.
    """

    def __call__(self, texts: Sequence[str]) -> Tokenizer:
        tokenizer = super().__call__(texts)
        tokenizer.backend.decoder = decoders.Sequence(
            [
                decoders.Replace(Regex("$"), " "),
                decoders.Replace(Regex("@@ $"), ""),
                decoders.Fuse(),
                decoders.Replace(Regex(" $"), ""),
            ]
        )
        return tokenizer


class BytePairs(TokenizerTrainer):
    """Byte-pair encoding over bytes, ``size`` ids: no text is unknown, and decoding gives back exactly what went in."""

    def __init__(self, size: int) -> None:
        require(size >= 256 + len(SPECIALS), f"a byte-level vocabulary needs at least 261 ids, got {size}")
        self.size = size

    def __call__(self, texts: Sequence[str]) -> Tokenizer:
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.size,
            special_tokens=list(SPECIALS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=sys.stderr.isatty(),
        )
        backend.train_from_iterator(texts, trainer, length=len(texts))
        return Tokenizer(backend)


class WordPieces(TokenizerTrainer):
    """BERT's lower-cased WordPiece, ``size`` ids; what it loses (case, accents, spacing) is lost by design."""

    def __init__(self, size: int = 30_522) -> None:
        self.size = size

    def __call__(self, texts: Sequence[str]) -> Tokenizer:
        # The library numbers letters inside words in the order of a hash table, and the numbers decide between merges
        # that are equally frequent. A first pass without merges finds these letters, the second is told their order.
        letters = [piece for piece in self._train(texts, 0, SPECIALS) if piece.startswith("##") and len(piece) == 3]
        return _given_pieces(self._train(texts, self.size, [*SPECIALS, *sorted(letters)]))

    def _train(self, texts: Sequence[str], size: int, first: Sequence[str]) -> dict[str, int]:
        """A vocabulary of ``size`` pieces that begins with ``first``."""
        backend = _like_bert(models.WordPiece(unk_token=UNK))
        trainer = trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=list(first), show_progress=sys.stderr.isatty()
        )
        backend.train_from_iterator(texts, trainer, length=len(texts))
        return backend.get_vocab()


class GivenWordPieces(TokenizerTrainer):
    """The WordPiece vocabulary in a file, one piece a line (BERT's ``vocab.txt``); every piece keeps its id."""

    def __init__(self, vocabulary: str) -> None:
        self.vocabulary = Path(vocabulary)
        require(self.vocabulary.is_file(), f"data.tokenizer.vocabulary: there is no {vocabulary}")

    def fingerprint(self) -> str:
        return digest(type(self).__name__, file_hash(self.vocabulary))

    def __call__(self, texts: Sequence[str]) -> Tokenizer:
        names = dict(zip(BERT_SPECIALS, SPECIALS, strict=True))
        ids: dict[str, int] = {}
        for index, line in enumerate(read_lines(self.vocabulary)):
            first = ids.setdefault(names.get(line, line), index)
            require(first == index, f"{self.vocabulary}, line {index + 1} repeats line {first + 1}: {line!r}")
        missing = [symbol for symbol, name in names.items() if name not in ids]
        require(not missing, f"{self.vocabulary} has no line {' nor '.join(missing)}")
        return _given_pieces(ids)


def _given_pieces(ids: dict[str, int]) -> Tokenizer:
    backend = _like_bert(models.WordPiece(ids, unk_token=UNK))
    backend.add_special_tokens(list(SPECIALS))
    return Tokenizer(backend)


def _like_bert(model: models.WordPiece) -> Backend:
    backend = Backend(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend
