"""Existing tokenizers: of the ``tokenizers`` library, of SentencePiece and of a run."""

import struct
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from rdm.data.tokenizer import SPECIALS, BytePairs, PreTokenized, Tokenizer, TokenizerTrainer, WordPieces, Words
from rdm.data.tokenizer_file import GivenTokenizer
from rdm.errors import UserError

TEXTS = ["one two three four", "five six seven eight"] * 20
SPELLED = " ".join(SPECIALS)


def given(path: Path, content: str | bytes) -> Tokenizer:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return GivenTokenizer(str(path))([])


def check_symbols(tokenizer: Tokenizer, folder: Path) -> None:
    """All symbols have ids of their own, no text is encoded to one but ``<unk>``, and a saved copy is the same."""
    vocab = tokenizer.vocab
    assert len(set(vocab.specials)) == 5
    assert max(vocab.specials) < vocab.size
    assert tokenizer.pieces(vocab.specials) == list(SPECIALS)
    texts = ["one two", SPELLED, f"a{SPELLED.replace(' ', 'b')}c", "<s> </s> [MASK] [CLS]", ""]
    rows = tokenizer.encode(texts)
    used = {index for row in rows for index in row}
    assert not used & {vocab.pad, vocab.mask, vocab.bos, vocab.eos}
    assert tokenizer.decode([[vocab.bos, *rows[0], vocab.eos, vocab.pad]]) == tokenizer.decode([rows[0]])
    tokenizer.save(folder / "saved.json")
    loaded = Tokenizer.load(folder / "saved.json")
    assert (loaded.vocab, loaded.fingerprint(), loaded.encode(texts)) == (vocab, tokenizer.fingerprint(), rows)


# Files of the tokenizers library.


@pytest.mark.parametrize("trainer", [Words(), PreTokenized(), BytePairs(300), WordPieces(60)])
def test_the_tokenizer_of_a_run_is_unchanged(tmp_path: Path, trainer: TokenizerTrainer) -> None:
    """Named by the run folder or by the file in it; fingerprints do not depend on the location."""
    trained = trainer(TEXTS)
    trained.save(tmp_path / "tokenizer.json")
    folder, file = GivenTokenizer(str(tmp_path)), GivenTokenizer(str(tmp_path / "tokenizer.json"))
    assert folder([]).fingerprint() == file([]).fingerprint() == trained.fingerprint()
    assert folder.fingerprint() == file.fingerprint()


def bert() -> Backend:
    tokens = ["[PAD]", "the", "[UNK]", "[CLS]", "dog", "##s", "[SEP]", "[MASK]"]
    backend = Backend(models.WordPiece({token: index for index, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    backend.post_processor = processors.BertProcessing(("[SEP]", 6), ("[CLS]", 3))
    backend.enable_padding(length=9)
    backend.enable_truncation(2)
    return backend


def test_bert_symbols_are_renamed_and_keep_their_ids(tmp_path: Path) -> None:
    """Framing, padding and truncation of the file are not used."""
    tokenizer = given(tmp_path / "any name", bert().to_str())
    assert tokenizer.vocab.specials == (0, 7, 3, 6, 2)
    assert tokenizer.vocab.size == 8
    assert tokenizer.encode(["The dogs dog cat"]) == [[1, 4, 5, 4, 2]]
    check_symbols(tokenizer, tmp_path)


def test_gpt2_symbols_are_added(tmp_path: Path) -> None:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=270, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    tokenizer = given(tmp_path / "tokenizer.json", backend.to_str())
    assert tokenizer.vocab.eos == 0
    assert tokenizer.vocab.size == backend.get_vocab_size() + 4
    assert tokenizer.decode(tokenizer.encode([SPELLED])) == [SPELLED]
    check_symbols(tokenizer, tmp_path)


def test_unigram_pieces_named_like_symbols_are_unknown_in_text(tmp_path: Path) -> None:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("UNKNOWN", 0.0), ("▁one", -1.0), ("▁", -2.0), ("t", -3.0)]
    backend = Backend(models.Unigram([*pieces, ("<mask>", 0.0)], 3))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = given(tmp_path / "tokenizer.json", backend.to_str())
    assert tokenizer.vocab.specials == (1, 7, 0, 2, 3)
    assert tokenizer.encode(["one <mask>", "one x"]) == [[4, 5, 3], [4, 5, 3]]
    check_symbols(tokenizer, tmp_path)


def test_words_named_like_symbols_are_unknown_in_text(tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({"[UNK]": 0, "one": 1, "<mask>": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = given(tmp_path / "tokenizer.json", backend.to_str())
    assert tokenizer.encode(["one <mask> two"]) == [[1, 0, 0]]
    check_symbols(tokenizer, tmp_path)


# SentencePiece. The messages are written here field by field, as protocol buffers prescribe.

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
START = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]


def varint(value: int) -> bytes:
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def model(pieces: list[tuple[str, float, int]], kind: int = 1, fallback: int = 0, **rules: int) -> bytes:
    """Return a model file; ``rules`` are the normalisation options ``prefix`` and ``spaces``."""
    entries = (
        message(1, message(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + number(3, type_))
        for text, score, type_ in pieces
    )
    normalizer = b"".join(number({"prefix": 3, "spaces": 4}[name], value) for name, value in rules.items())
    trainer = message(2, b"prefix") + number(3, kind) + number(35, fallback)
    return b"".join(entries) + message(2, trainer) + message(3, normalizer) + number(200, 1)


def letters(text: str) -> list[tuple[str, float, int]]:
    return [(letter, -9.0 - index, NORMAL) for index, letter in enumerate(text)]


UNIGRAM = [
    *START,
    ("▁the", -2.0, NORMAL),
    ("▁cat", -3.0, NORMAL),
    ("<mask>", 0.0, USER_DEFINED),
    *letters("▁thecaso<>mk"),
]


def test_a_unigram_model(tmp_path: Path) -> None:
    """The most probable pieces; extra spaces are removed; control symbols are never found in text."""
    tokenizer = given(tmp_path / "m.model", model(UNIGRAM))
    rows = tokenizer.encode(["the  cats ", "<s> x"])
    assert [tokenizer.pieces(row) for row in rows] == [
        ["▁the", "▁cat", "s"],
        ["▁", "<", "s", ">", "▁", "<unk>"],
    ]
    assert tokenizer.decode(rows)[0] == "the cats"
    assert tokenizer.vocab.size == len(UNIGRAM) - 3 + 4  # <s>, </s> and <mask> are replaced by our symbols
    check_symbols(tokenizer, tmp_path)


def test_normalisation_options_of_a_model(tmp_path: Path) -> None:
    tokenizer = given(tmp_path / "m.model", model(UNIGRAM, prefix=0, spaces=0))
    (row,) = tokenizer.encode(["the  cat"])
    assert tokenizer.pieces(row) == ["t", "h", "e", "▁", "▁cat"]
    assert tokenizer.decode([row]) == ["the  cat"]


def test_pieces_of_several_words_and_user_symbols(tmp_path: Path) -> None:
    pieces = [*START, ("▁the▁cat", -1.0, NORMAL), ("<url>", 0.0, USER_DEFINED), *letters("▁thecaurl<>")]
    tokenizer = given(tmp_path / "m.model", model(pieces))
    rows = tokenizer.encode(["the cat", "a<url>"])
    assert [tokenizer.pieces(row) for row in rows] == [["▁the▁cat"], ["▁", "a", "<url>"]]
    assert tokenizer.decode(rows) == ["the cat", "a<url>"]


def test_a_bpe_model_with_byte_fallback(tmp_path: Path) -> None:
    """Pieces with a higher score are merged first; unknown characters become bytes."""
    merged = [("▁t", 0.0, NORMAL), ("▁th", -1.0, NORMAL), ("at", -2.0, NORMAL), ("▁the", -3.0, NORMAL)]
    octets = [(f"<0x{value:02X}>", 0.0, BYTE) for value in range(256)]
    content = model([*START, *octets, *merged, ("cat", -4.0, NORMAL), *letters("▁thecao")], kind=2, fallback=1)
    tokenizer = given(tmp_path / "m.model", content)
    rows = tokenizer.encode(["the cat", "é"])
    assert [tokenizer.pieces(row) for row in rows] == [["▁the", "▁", "cat"], ["▁", "<0xC3>", "<0xA9>"]]
    assert tokenizer.decode(rows) == ["the cat", "é"]
    check_symbols(tokenizer, tmp_path)


# Errors.


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"[PAD]\n[UNK]\nthe\n", "is not a tokenizer.json, a SentencePiece model or a run folder; for a WordPiece"),
        (b"", "is not a tokenizer.json, a SentencePiece model or a run folder"),
        (b"\x0a\xff\xff\xff\xff", "is not a tokenizer.json, a SentencePiece model or a run folder"),
        (model(UNIGRAM)[:-9], "is not a tokenizer.json, a SentencePiece model or a run folder"),
        (model(UNIGRAM[1:]), "is not a tokenizer.json, a SentencePiece model or a run folder"),
        (model(UNIGRAM, kind=3), "is a word model; only unigram and bpe models can be read"),
        (b"{", "is not a tokenizer.json ("),
        (b'{"a": 1}', "is not a tokenizer.json ('model')"),
        (b'{"model": {"type": "Nonsense", "vocab": {}}}', "is not a tokenizer.json ("),
        (
            b'{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 7}, "unk_token": "[UNK]"}}',
            "there must be no gaps",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, text: str) -> None:
    with pytest.raises(UserError) as caught:
        given(tmp_path / "file", content)
    assert str(caught.value).startswith(f"data.tokenizer.path: {tmp_path / 'file'} ")
    assert text in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_is_refused_when_used(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.json", tmp_path):
        missing = GivenTokenizer(str(path))  # a trained model does not need the file
        asks: list[Any] = [missing.fingerprint, lambda missing=missing: missing([])]
        for ask in asks:
            with pytest.raises(UserError, match=r"data\.tokenizer\.path: there is no .*\.json; name a tokenizer\.json"):
                ask()
