"""Encoding and decoding with every kind of tokenizer."""

import resource
import signal
from itertools import chain
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.data.tokenizer import (
    BytePairs,
    GivenWordPieces,
    PreTokenized,
    Tokenizer,
    TokenizerTrainer,
    WordPieces,
    Words,
)
from rdm.errors import UserError
from tests.builders import toy_data
from tests.data.helpers import InMemoryCorpus, pairs

TEXTS = ["one two three four", "five six seven eight"] * 20
SPELLED = "<pad> <mask> <bos> <eos> <unk>"


def vocabulary(folder: Path, *pieces: str) -> str:
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return str(folder / "vocab.txt")


# All tokenizers.

TRAINERS = {
    "words": Words(),
    "pretokenized": PreTokenized(),
    "bytes": BytePairs(400),
    "wordpiece": WordPieces(100),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_special_symbols(name: str, tmp_path: Path) -> None:
    """They have fixed ids that no text is encoded to; decoding drops them. Also after loading."""
    texts = [*TEXTS, f"{SPELLED} one"]
    trained = TRAINERS[name](texts)
    trained.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.vocab == trained.vocab
    assert loaded.fingerprint() == trained.fingerprint()
    for tokenizer in (trained, loaded):
        vocab = tokenizer.vocab
        assert vocab.specials == (0, 1, 2, 3, 4)
        used = {index for row in tokenizer.encode([*texts, SPELLED]) for index in row}
        assert not used & set(vocab.specials[:4])
        assert max(used) < vocab.size
        assert tokenizer.decode(tokenizer.encode(["one six"])) == ["one six"]
        assert tokenizer.decode([[2, *tokenizer.encode(["two"])[0], 3, 0, 0], [], [0]]) == ["two", "", ""]
        assert tokenizer.pieces(vocab.specials) == SPELLED.split()
        assert tokenizer.encode(["", "  "])[0] == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A run rewrites its tokenizer on every resume. The library itself would raise a bare ``Exception``."""
    file = tmp_path / "tokenizer.json"
    Words()(["a"]).save(file)
    before, (soft, hard) = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            Words()(["b"]).save(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


FUZZED = {name: trainer([*TEXTS, f"{SPELLED} äß @@ ' 中文"]) for name, trainer in TRAINERS.items()}


@pytest.mark.parametrize("name", TRAINERS)
@given(
    texts=st.lists(
        st.text(max_size=40) | st.sampled_from([SPELLED, "one @@", "\0", "\u202e", "👩\u200d👧"]), max_size=4
    )
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_any_text_is_encoded_within_the_vocabulary(name: str, texts: list[str]) -> None:
    """Without special symbols other than ``<unk>``, and independent of the other texts."""
    tokenizer = FUZZED[name]
    rows = tokenizer.encode(texts)
    assert rows == [tokenizer.encode([text])[0] for text in texts]
    used = {index for row in rows for index in row}
    assert all(0 <= index < tokenizer.vocab.size for index in used)
    assert not used & set(tokenizer.vocab.specials[:4])
    again = tokenizer.decode(rows)
    assert len(again) == len(texts)
    tokenizer.encode(again)


@pytest.mark.parametrize("name", TRAINERS)
def test_an_unpaired_surrogate_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="an unpaired surrogate"):
        FUZZED[name].encode(["a \ud800"])


@pytest.mark.parametrize("name", TRAINERS)
def test_training_is_deterministic(name: str) -> None:
    """Also when many merges are equally frequent."""
    assert len({TRAINERS[name](TEXTS).fingerprint() for _ in range(5)}) == 1
    assert TRAINERS[name](iter(TEXTS)).fingerprint() == TRAINERS[name](TEXTS).fingerprint()
    assert TRAINERS[name](TEXTS).fingerprint() != TRAINERS[name]([*TEXTS, "nine zebras"]).fingerprint()


def test_trainer_fingerprints_depend_on_class_size_and_vocabulary(tmp_path: Path) -> None:
    """Not on the location of a vocabulary file."""
    (tmp_path / "moved").mkdir()
    first = GivenWordPieces(vocabulary(tmp_path, "a")).fingerprint()
    assert GivenWordPieces(vocabulary(tmp_path / "moved", "a")).fingerprint() == first
    second = GivenWordPieces(vocabulary(tmp_path, "b")).fingerprint()
    trainers = [*TRAINERS.values(), BytePairs(401), WordPieces(101)]
    prints = [first, second, *(trainer.fingerprint() for trainer in trainers)]
    assert len(set(prints)) == len(prints)
    assert BytePairs(400).fingerprint() == TRAINERS["bytes"].fingerprint()


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": "1.0"}', b"\xff\xfe"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UserError, match=r"tokenizer\.json is not a tokenizer: ."):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_file_without_our_special_symbols_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import WordLevel

    Backend(WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=r"is not a tokenizer: a tokenizer needs the symbols <pad> <mask>"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tokenizer at"):
        Tokenizer.load(tmp_path / "tokenizer.json")


# Words.


def test_words_round_trip() -> None:
    data = toy_data()
    texts = data.corpus.read("train")[1]
    assert data.codec.decode(data.codec.tokenizer.encode(texts)) == texts


def test_a_word_written_like_a_special_symbol_is_unknown() -> None:
    """It gets no id and changes no other id, in training text or later."""
    tokenizer = Words()(["b a <mask> a <eos> x<pad>", "<unk>"])
    assert tokenizer.pieces(range(tokenizer.vocab.size)) == [*SPELLED.split(), "a", "b", "x<pad>"]
    assert tokenizer.encode([f"a {SPELLED} <pad>x x<pad>"]) == [[5, *[4] * 6, 7]]


# Subwords joined by `@@ `.


def test_subwords_are_joined() -> None:
    tokenizer = PreTokenized()(["un@@ like@@ ly , event", "an@@"])
    rows = tokenizer.encode(["un@@ like@@ ly event , un@@ event", "an@@", "event", ""])
    assert [len(row) for row in rows] == [7, 1, 1, 0]
    assert tokenizer.decode(rows) == ["unlikely event , unevent", "an", "event", ""]
    assert tokenizer.pieces(rows[0])[:3] == ["un@@", "like@@", "ly"]


pieces = st.text(st.sampled_from("abäß'&;.,-@"), min_size=1, max_size=4).filter(lambda piece: not piece.endswith("@"))


@given(words=st.lists(st.lists(pieces, min_size=1, max_size=3), min_size=1, max_size=6))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_joined_subwords_are_the_words(words: list[list[str]]) -> None:
    cut = " ".join(" ".join([*(f"{piece}@@" for piece in word[:-1]), word[-1]]) for word in words)
    tokenizer = PreTokenized()([cut])
    assert tokenizer.decode(tokenizer.encode([cut])) == [" ".join("".join(word) for word in words)]


def test_every_subword_is_kept() -> None:
    """Also beyond the 30,000 types that are the default limit of trainers."""
    types = [f"w{i}" for i in range(40_000)]
    tokenizer = PreTokenized()(types)
    assert tokenizer.vocab.size == 40_005
    assert tokenizer.decode(tokenizer.encode(types[::4_000])) == types[::4_000]
    assert len(set(chain(*tokenizer.encode(types)))) == 40_000


# Byte-level BPE.

BYTES = BytePairs(300)(["a small text", "another small text"] * 10)


@given(text=st.text(max_size=40))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_byte_level_encoding_is_lossless(text: str) -> None:
    """For any text: control characters, unusual spaces, letters not seen in training."""
    (row,) = BYTES.encode([text])
    assert BYTES.decode([row]) == [text]
    assert not set(BYTES.vocab.specials) & set(row)


ODD = ["naïve café — 10€?", "tabs\tand  double  spaces", "emoji 👩‍👩‍👧 and שלום", SPELLED, " 日本語の文\r\n"]


def test_byte_level_encoding_is_lossless_after_loading(tmp_path: Path) -> None:
    BYTES.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.decode(loaded.encode(ODD)) == ODD
    assert loaded.encode(ODD) == BYTES.encode(ODD)


def test_byte_level_tokens_are_shown_as_text() -> None:
    """With ``▁`` for a space and specials by name; a part of a multi-byte character is shown as stored."""
    tokenizer = BytePairs(300)(["für größte Übung"] * 5)
    (row,) = tokenizer.encode(["für größte"])
    assert tokenizer.pieces([tokenizer.vocab.mask, *row]) == ["<mask>", "für", "▁größte"]
    (halves,) = tokenizer.encode(["é"])
    assert tokenizer.pieces(halves) == ["Ã", "©"]


def test_a_byte_level_vocabulary_includes_all_bytes() -> None:
    assert BytePairs(261)(TEXTS).vocab.size == 261
    assert BytePairs(270)(TEXTS).vocab.size == 270
    with pytest.raises(UserError, match="at least 261 ids, got 260"):
        BytePairs(260)


# WordPiece.


def test_wordpiece_lowercases_and_splits() -> None:
    tokenizer = WordPieces(200)(["What is the naïve approach?"] * 5)
    assert tokenizer.decode(tokenizer.encode(["WHAT is  the Naïve approach ?"])) == ["what is the naive approach?"]
    known = tokenizer.pieces(range(tokenizer.vocab.size))
    assert len(set(known)) == tokenizer.vocab.size
    assert tokenizer.decode([[known.index("w"), known.index("##h"), known.index("##o")]]) == ["who"]
    assert WordPieces(45)(TEXTS).vocab.size == 45


BERT = ["[PAD]", "the", "[unused0]", "[UNK]", "[CLS]", "dog", "##s", "[SEP]", "[MASK]", "bark", "."]


def test_tokens_of_a_vocabulary_file_keep_their_ids(tmp_path: Path) -> None:
    tokenizer = GivenWordPieces(vocabulary(tmp_path, *BERT))(["other text"])
    vocab = tokenizer.vocab
    assert vocab.size == 11
    assert vocab.specials == (0, 8, 4, 7, 3)
    assert tokenizer.encode(["The DOGS bark.", "the cat [MASK]"]) == [[1, 5, 6, 9, 10], [1, 3, 3, 3, 3]]
    assert tokenizer.decode([[4, 1, 5, 6, 9, 10, 7, 0, 8]]) == ["the dogs bark."]
    assert tokenizer.pieces(range(11))[1:3] == ["the", "[unused0]"]
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.vocab == vocab
    assert loaded.encode(["The DOGS bark."]) == [[1, 5, 6, 9, 10]]


def test_only_a_line_feed_ends_a_token(tmp_path: Path) -> None:
    """``str.splitlines`` would split at other characters too and shift the ids after them."""
    tokenizer = GivenWordPieces(vocabulary(tmp_path, "x\x85y", "x\u2028y", *BERT))([])
    assert tokenizer.vocab.size == 13
    assert tokenizer.encode(["the dogs"]) == [[3, 7, 8]]


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([piece for piece in BERT if piece != "[MASK]"], r"vocab\.txt has no line \[MASK\]$"),
        (["the"], r"has no line \[PAD\] nor \[MASK\] nor \[CLS\] nor \[SEP\] nor \[UNK\]"),
        ([*BERT, "dog"], r"vocab\.txt, line 12 repeats line 6: 'dog'"),
        ([], r"vocab\.txt is empty"),
    ],
)
def test_an_invalid_vocabulary_file_is_refused(tmp_path: Path, pieces: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        GivenWordPieces(vocabulary(tmp_path, *pieces))([])


def test_an_unreadable_vocabulary_file_is_refused_when_used(tmp_path: Path) -> None:
    missing = GivenWordPieces(str(tmp_path / "vocab.txt"))  # a trained model does not need the file
    for use in (missing.fingerprint, lambda: missing([])):
        with pytest.raises(UserError, match=r"data\.tokenizer\.vocabulary: there is no .*vocab\.txt"):
            use()
    (tmp_path / "vocab.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(UserError, match=r"vocab\.txt, line 2 is not UTF-8"):
        GivenWordPieces(str(tmp_path / "vocab.txt"))([])


def test_batches_are_framed_with_the_specials_of_the_tokenizer(tmp_path: Path) -> None:
    """The whole pipeline with special symbols at unusual ids."""
    trainer: TokenizerTrainer = GivenWordPieces(vocabulary(tmp_path, *BERT))
    data = pairs(tmp_path / "cache", InMemoryCorpus((["the dogs bark .", "dog"], ["the dog", "bark the cat"])), trainer)
    batch = data.examples("train")[[0, 1]]
    assert batch.source.tolist() == [[4, 1, 5, 6, 9, 10, 7], [4, 5, 7, 0, 0, 0, 0]]
    assert batch.target.tolist() == [[4, 1, 5, 7, 0], [4, 9, 1, 3, 7]]
    assert data.codec.sources([[1], [9, 10]]).tolist() == [[4, 1, 7, 0], [4, 9, 10, 7]]
    assert torch.equal(data.target_counts(), torch.tensor([0, 2, 0, 1, 0, 1, 0, 0, 0, 1, 0]))
    assert data.codec.decode(batch.source.tolist()) == ["the dogs bark.", "dog"]
