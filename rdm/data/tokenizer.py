"""Text to ids and back, kept in one JSON file that travels with the run."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordLevelTrainer

from rdm.errors import require
from rdm.vocab import Vocab

PAD, MASK, BOS, EOS, UNK = SPECIALS = ("<pad>", "<mask>", "<bos>", "<eos>", "<unk>")


class Tokenizer:
    """A trained tokenizer and the :class:`Vocab` it stands for."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        names = {name: backend.token_to_id(name) for name in SPECIALS}
        ids = {name.strip("<>"): index for name, index in names.items() if index is not None}
        require(len(ids) == len(SPECIALS), f"a tokenizer needs the symbols {' '.join(SPECIALS)}")
        self.vocab = Vocab(size=backend.get_vocab_size(), **ids)

    @classmethod
    def words(cls, texts: Iterable[str]) -> "Tokenizer":
        """One id for every word of ``texts``, split at white space."""
        backend = Backend(WordLevel(unk_token=UNK))
        backend.pre_tokenizer = WhitespaceSplit()
        backend.train_from_iterator(texts, WordLevelTrainer(special_tokens=list(SPECIALS), show_progress=False))
        return cls(backend)

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
