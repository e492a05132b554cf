"""An existing tokenizer: of the ``tokenizers`` library, of SentencePiece, or of a run."""

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, normalizers
from tokenizers import Tokenizer as Backend

from rdm.data.sentencepiece_model import OTHER_MODELS, SentencePieceModel
from rdm.data.tokenizer import BOS, EOS, MASK, PAD, SPECIALS, UNK, Tokenizer, TokenizerTrainer
from rdm.errors import UserError, require
from rdm.hashing import file_hash, short_hash

OTHER_NAMES = {
    PAD: ("[PAD]", "<|pad|>", "<|padding|>"),
    MASK: ("[MASK]", "<|mask|>"),
    BOS: ("<s>", "[BOS]", "[CLS]", "<|startoftext|>", "<|begin_of_text|>"),
    EOS: ("</s>", "[EOS]", "[SEP]", "<|endoftext|>", "<|end_of_text|>"),
    UNK: ("[UNK]", "<|unk|>"),
}
"""What other libraries call our special symbols, in order of preference."""
SYMBOL_NAMES = frozenset([*SPECIALS, *(name for names in OTHER_NAMES.values() for name in names)])
KINDS = "a tokenizer.json, a SentencePiece model or a run folder"


class GivenTokenizer(TokenizerTrainer):
    """A tokenizer read from a file; its content determines the format.

    Special symbols that the file has under another name (``[PAD]``, ``<s>``) are renamed, the others are added.

    Args:
        path: a ``tokenizer.json``, a SentencePiece ``.model``, or a folder with a ``tokenizer.json``, e.g. of a run.
    """

    def __init__(self, path: str) -> None:
        # Not opened here: a trained model uses its saved tokenizer and does not need the file.
        self.path = Path(path)

    def _file(self) -> Path:
        file = self.path / "tokenizer.json" if self.path.is_dir() else self.path
        require(file.is_file(), f"data.tokenizer.path: there is no {file}; name {KINDS}")
        return file

    def fingerprint(self) -> str:
        return short_hash(type(self).__name__, file_hash(self._file()))

    def __call__(self, texts: Iterable[str]) -> Tokenizer:
        file = self._file()
        content = file.read_bytes()
        backend = _from_json(content, file) if content.lstrip()[:1] == b"{" else _from_sentencepiece(content, file)
        backend.add_special_tokens(list(SPECIALS))
        ids = backend.get_vocab().values()
        gaps = f"data.tokenizer.path: {file} has {len(ids)} tokens, but ids up to {max(ids)}; there must be no gaps"
        require(sorted(ids) == list(range(len(ids))), gaps)
        return _without_symbols_in_text(backend)


def _from_json(content: bytes, file: Path) -> Backend:
    """Return a tokenizer of the ``tokenizers`` library with our names of the special symbols."""
    try:
        settings = json.loads(content)
        return Backend.from_str(json.dumps(_renamed(settings)))
    except Exception as error:  # the library raises nothing narrower, and the content may have any structure
        reason = str(error).splitlines()[0]
        raise UserError(f"data.tokenizer.path: {file} is not a tokenizer.json ({reason}); name {KINDS}") from error


def _renamed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json`` that encodes text only, with our names of the special symbols."""
    model, added = settings["model"], settings.get("added_tokens") or []
    names = _our_names(model, [token["content"] for token in added])
    vocab = model["vocab"]
    if isinstance(vocab, list):  # a unigram model has pieces with their scores
        vocab = [[names.get(token, token), score] for token, score in vocab]
    else:
        vocab = {names.get(token, token): index for token, index in vocab.items()}
    unknown = {"unk_token": names.get(model["unk_token"])} if "unk_token" in model else {}
    return {
        **settings,
        "model": {**model, "vocab": vocab, **unknown},
        "added_tokens": [{**token, "content": names.get(token["content"], token["content"])} for token in added],
        # The codec frames, pads and truncates.
        "truncation": None,
        "padding": None,
        "post_processor": None,
    }


def _our_names(model: dict[str, Any], added: list[str]) -> dict[str, str]:
    """Return our names of the special symbols of a ``tokenizer.json``, by the names they have there."""
    tokens = [token for token, _ in model["vocab"]] if isinstance(model["vocab"], list) else list(model["vocab"])
    unknown = model.get("unk_token") if model.get("unk_id") is None else tokens[model["unk_id"]]
    names = {} if unknown is None else {unknown: UNK}
    known = {*tokens, *added}
    for symbol, others in OTHER_NAMES.items():
        found = [name for name in (symbol, *others) if name in known and name not in names]
        if found and symbol not in names.values():
            names[found[0]] = symbol
    return names


def _from_sentencepiece(content: bytes, file: Path) -> Backend:
    """Return a SentencePiece model as a tokenizer of the ``tokenizers`` library."""
    try:
        model = SentencePieceModel.parse(content)
    except (ValueError, KeyError, struct.error) as error:
        advice = "for a WordPiece vocabulary with one piece per line use data/tokenizer=wordpiece_file"
        raise UserError(f"data.tokenizer.path: {file} is not {KINDS}; {advice}") from error
    kind = OTHER_MODELS.get(model.model_type)
    require(kind is None, f"data.tokenizer.path: {file} is a {kind} model; only unigram and bpe models can be read")
    try:
        return model.convert(UNK, excluded=SYMBOL_NAMES)
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"data.tokenizer.path: {file} cannot be converted: {str(error).splitlines()[0]}") from error


def _without_symbols_in_text(backend: Backend) -> Tokenizer:
    """Return the tokenizer; text that is written like a special symbol becomes ``<unk>`` where it would be one."""
    tokenizer = Tokenizer(backend)
    spelled = {index for row in tokenizer.encode([*SPECIALS, f"a{'a'.join(SPECIALS)}a"]) for index in row}
    if spelled & set(tokenizer.vocab.specials) - {tokenizer.vocab.unk}:
        replace = normalizers.Replace(Regex("|".join(SPECIALS)), UNK)
        backend.normalizer = normalizers.Sequence([replace, *([backend.normalizer] if backend.normalizer else [])])
    return tokenizer
