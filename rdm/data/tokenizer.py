"""Text to ids and back, kept in one JSON file that travels with the run."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from rdm.errors import require
from rdm.vocab import Vocab

PAD, MASK, BOS, EOS, UNK = SPECIALS = ("<pad>", "<mask>", "<bos>", "<eos>", "<unk>")


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
        return cls(Backend.from_file(str(path)))

    def save(self, path: str | Path) -> None:
        self.backend.save(str(path))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of every text, without special symbols."""
        return [encoding.ids for encoding in self.backend.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The texts of rows of ids; special symbols leave no trace."""
        return self.backend.decode_batch([list(row) for row in rows], skip_special_tokens=True)

    def pieces(self, row: Sequence[int]) -> list[str]:
        """Every id of a row as it stands, specials included."""
        return [str(self.backend.id_to_token(index)) for index in row]


class TokenizerTrainer(ABC):
    """Makes a tokenizer from text."""

    @abstractmethod
    def __call__(self, texts: Sequence[str]) -> Tokenizer: ...


class Words(TokenizerTrainer):
    """One id for every word, split at white space."""

    def __call__(self, texts: Sequence[str]) -> Tokenizer:
        backend = Backend(models.WordLevel(unk_token=UNK))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordLevelTrainer(special_tokens=list(SPECIALS), show_progress=False)
        backend.train_from_iterator(texts, trainer)
        return Tokenizer(backend)


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
        )
        backend.train_from_iterator(texts, trainer, length=len(texts))
        return Tokenizer(backend)


class WordPieces(TokenizerTrainer):
    """BERT's lower-cased WordPiece, ``size`` ids; what it loses (case, accents, spacing) is lost by design."""

    def __init__(self, size: int = 30_522) -> None:
        self.size = size

    def __call__(self, texts: Sequence[str]) -> Tokenizer:
        backend = Backend(models.WordPiece(unk_token=UNK))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=self.size, special_tokens=list(SPECIALS))
        backend.train_from_iterator(texts, trainer, length=len(texts))
        return Tokenizer(backend)
