"""Tokenizers: trained on text or read from a vocabulary, saved as one JSON file."""

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from rdm.data.reading import read_lines
from rdm.data.text_parts import chunks, sample_texts
from rdm.describe import Described
from rdm.errors import UserError, require
from rdm.files import write_text
from rdm.hashing import file_hash, settings_hash, short_hash
from rdm.vocab import Vocab

PAD, MASK, BOS, EOS, UNK = SPECIALS = ("<pad>", "<mask>", "<bos>", "<eos>", "<unk>")
BERT_SPECIALS = ("[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]")
"""The names of the same symbols in a BERT vocabulary, in the same order."""
SPELLED = rf"(?<!\S)({'|'.join(SPECIALS)})(?!\S)"
"""Matches a word that is written like a special symbol."""


class Tokenizer:
    """A trained tokenizer and its :class:`Vocab`."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        backend.encode_special_tokens = True  # text like "<mask>" is encoded as text
        names = {name: backend.token_to_id(name) for name in SPECIALS}
        ids = {name.strip("<>"): index for name, index in names.items() if index is not None}
        require(len(ids) == len(SPECIALS), f"a tokenizer needs the symbols {' '.join(SPECIALS)}")
        self.vocab = Vocab(size=backend.get_vocab_size(), **ids)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        require(Path(path).is_file(), f"no tokenizer at {path}: use a run folder of train.py")
        try:
            return cls(Backend.from_file(str(path)))
        except Exception as error:  # the library raises nothing narrower
            raise UserError(f"{path} is not a tokenizer: {error}") from error

    def save(self, path: str | Path) -> None:
        # Not with the library: it writes in place and raises no OSError when the disk is full.
        write_text(Path(path), self.backend.to_str(pretty=True))

    def fingerprint(self) -> str:
        """Return a hash of the tokenizer."""
        return short_hash(self.backend.to_str())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of every text, without special symbols; runs on all cores."""
        try:
            # In chunks, because an encoding of the library is many times larger than its ids.
            batches = (self.backend.encode_batch_fast(chunk, add_special_tokens=False) for chunk in chunks(texts))
            return [encoding.ids for encodings in batches for encoding in encodings]
        except TypeError as error:  # the library raises nothing narrower
            number = next((number for number, text in enumerate(texts, 1) if re.search("[\ud800-\udfff]", text)), 0)
            advice = "save the text as UTF-8"
            raise UserError(f"text {number} has an unpaired surrogate, which is not a character: {advice}") from error

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of rows of ids; special symbols are left out."""
        return self.backend.decode_batch([list(row) for row in rows], skip_special_tokens=True)

    def pieces(self, row: Sequence[int]) -> list[str]:
        """Return the token of every id, specials included; byte-level tokens as text, with ``▁`` for a space."""
        names = [str(self.backend.id_to_token(index)) for index in row]
        if not isinstance(self.backend.decoder, decoders.ByteLevel):
            return names
        texts = [self.backend.decoder.decode([name]).replace(" ", "▁") for name in names]
        # A token may hold a part of a multi-byte character, which does not decode.
        return [name if "\ufffd" in text else text for name, text in zip(names, texts, strict=True)]


class TokenizerTrainer(Described, ABC):
    """Makes a tokenizer from text."""

    @abstractmethod
    def __call__(self, texts: Iterable[str]) -> Tokenizer:
        """Return a tokenizer; ``texts`` can be iterated over once and may be larger than the memory."""

    def fingerprint(self) -> str:
        """Return a hash that changes whenever the same text may give a different tokenizer."""
        return settings_hash(self.describe())


class Words(TokenizerTrainer):
    """One id per word, split at white space; a word written like a special symbol is ``<unk>``."""

    def __call__(self, texts: Iterable[str]) -> Tokenizer:
        backend = Backend(models.WordLevel(unk_token=UNK))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordLevelTrainer(vocab_size=2**31, special_tokens=list(SPECIALS), show_progress=False)
        backend.train_from_iterator((re.sub(SPELLED, "", text) for text in texts), trainer)
        backend.normalizer = normalizers.Replace(Regex(SPELLED), UNK)
        return Tokenizer(backend)


class PreTokenized(Words):
    """For text already split into subwords, ``un@@ like@@ ly`` (subword-nmt); decoding joins them.

    The subwords are used unchanged, so that scores follow the protocol of the released data. Decoded text keeps the
    word tokenisation of the corpus.
    """

    def __call__(self, texts: Iterable[str]) -> Tokenizer:
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
    """Byte-level BPE with ``size`` ids: no text is unknown, and decoding is lossless.

    Merges are learned on a sample of a large text; see :func:`~rdm.data.text_parts.sample_texts`.
    """

    def __init__(self, size: int) -> None:
        require(size >= 256 + len(SPECIALS), f"a byte-level vocabulary needs at least 261 ids, got {size}")
        self.size = size

    def __call__(self, texts: Iterable[str]) -> Tokenizer:
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.size,
            special_tokens=list(SPECIALS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=sys.stderr.isatty(),
        )
        sample = sample_texts(texts)
        backend.train_from_iterator(sample, trainer, length=len(sample))
        return Tokenizer(backend)


class BytePairsWithSymbols(BytePairs):
    """Byte-level BPE in which each of ``symbols`` is one token of its own, with the space before it if it has one.

    WikiText contains the word ``<unk>`` in place of rare words. Plain BPE splits it into three pieces, of which two
    follow with certainty, and decoding by certainty fills texts with them.

    >>> tokenizer = BytePairsWithSymbols(280, [" <unk>"])(["the <unk> of <unk>"] * 3)
    >>> (row,) = tokenizer.encode(["of <unk> <unk>"])
    >>> tokenizer.pieces(row)[-2:], tokenizer.decode([row])
    (['▁<unk>', '▁<unk>'], ['of <unk> <unk>'])
    """

    def __init__(self, size: int, symbols: Sequence[str]) -> None:
        super().__init__(size - len(symbols))
        self.symbols = list(symbols)
        clash = sorted(set(self.symbols) & set(SPECIALS))
        require(not clash, f"data.tokenizer.symbols: {clash} are special symbols; write a space before them")

    def __call__(self, texts: Iterable[str]) -> Tokenizer:
        split = re.compile("|".join(map(re.escape, self.symbols)))
        tokenizer = super().__call__(split.sub("\n", text) for text in texts)
        tokenizer.backend.add_tokens([AddedToken(symbol, normalized=False) for symbol in self.symbols])
        return Tokenizer(tokenizer.backend)


class WordPieces(TokenizerTrainer):
    """BERT's lower-cased WordPiece with ``size`` ids; case, accents and spacing are lost by design.

    Pieces are learned on a sample of a large text; see :func:`~rdm.data.text_parts.sample_texts`.
    """

    def __init__(self, size: int = 30_522) -> None:
        self.size = size

    def __call__(self, texts: Iterable[str]) -> Tokenizer:
        # The library numbers word-internal letters in hash-table order, and these numbers break ties between equally
        # frequent merges. For a deterministic vocabulary, a first pass without merges collects the letters, and the
        # second pass gets them in sorted order.
        sample = sample_texts(texts)
        letters = [piece for piece in self._train(sample, 0, SPECIALS) if piece.startswith("##") and len(piece) == 3]
        return _from_vocabulary(self._train(sample, self.size, [*SPECIALS, *sorted(letters)]))

    def _train(self, texts: Sequence[str], size: int, first: Sequence[str]) -> dict[str, int]:
        """Return a vocabulary of ``size`` tokens that begins with ``first``."""
        backend = _bert_backend(models.WordPiece(unk_token=UNK))
        trainer = trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=list(first), show_progress=sys.stderr.isatty()
        )
        backend.train_from_iterator(texts, trainer, length=len(texts))
        return backend.get_vocab()


class GivenWordPieces(TokenizerTrainer):
    """A WordPiece vocabulary file with one token per line (BERT's ``vocab.txt``); tokens keep their ids."""

    def __init__(self, vocabulary: str) -> None:
        # Not opened here: a trained model uses its saved tokenizer and does not need the file.
        self.vocabulary = Path(vocabulary)

    def _existing_file(self) -> Path:
        require(self.vocabulary.is_file(), f"data.tokenizer.vocabulary: there is no {self.vocabulary}")
        return self.vocabulary

    def fingerprint(self) -> str:
        return short_hash(type(self).__name__, file_hash(self._existing_file()))

    def __call__(self, texts: Iterable[str]) -> Tokenizer:
        names = dict(zip(BERT_SPECIALS, SPECIALS, strict=True))
        ids: dict[str, int] = {}
        for index, line in enumerate(read_lines(self._existing_file())):
            first = ids.setdefault(names.get(line, line), index)
            require(first == index, f"{self.vocabulary}, line {index + 1} repeats line {first + 1}: {line!r}")
        missing = [symbol for symbol, name in names.items() if name not in ids]
        require(not missing, f"{self.vocabulary} has no line {' nor '.join(missing)}")
        return _from_vocabulary(ids)


def _from_vocabulary(ids: dict[str, int]) -> Tokenizer:
    backend = _bert_backend(models.WordPiece(ids, unk_token=UNK))
    backend.add_special_tokens(list(SPECIALS))
    return Tokenizer(backend)


def _bert_backend(model: models.WordPiece) -> Backend:
    backend = Backend(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend
