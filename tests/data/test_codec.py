"""A codec encodes, frames and decodes text, and a saved one needs nothing but its folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rdm.data.codec import KINDS, Codec, OpenEndedCodec, PairCodec
from rdm.data.pairs import PairsDataModule
from rdm.data.tokenizer import BytePairs, GivenWordPieces, WordPieces, Words
from rdm.errors import UserError
from tests.builders import toy_data
from tests.data.helpers import InMemoryCorpus, open_ended, pairs

WORDS = Words()(["a b c d e f g h i j"])
PAIRS = PairCodec(WORDS, max_length=5)
TEXT = OpenEndedCodec(WORDS, max_length=5)
PAD, MASK, BOS, EOS, UNK = range(5)
A, B, C, D = range(5, 9)


# Pairs.


def test_sources_are_framed_as_in_training() -> None:
    data = toy_data()
    batch = data.examples("train")[[3, 4, 5]]
    sources, targets = (side[3:6] for side in data.corpus.read("train"))
    codec = data.codec
    assert torch.equal(codec.sources(codec.encode_sources(sources)), batch.source)
    scored = codec.batch(codec.encode_sources(sources), codec.encode_targets(targets))
    assert torch.equal(scored.source, batch.source)
    assert torch.equal(scored.target, batch.target)
    assert scored.ids.tolist() == [0, 1, 2]
    assert scored.counts == {}


def test_unknown_words_become_unk() -> None:
    assert PAIRS.sources(PAIRS.encode_sources(["zzz"])).tolist() == [[BOS, UNK, EOS]]


@pytest.mark.parametrize(("text", "count"), [("", 0), ("   ", 0), ("a " * 6, 6)])
@pytest.mark.parametrize("side", ["source", "target"])
def test_texts_that_do_not_fit_are_refused(side: str, text: str, count: int) -> None:
    encode = {"source": PAIRS.encode_sources, "target": PAIRS.encode_targets}[side]
    with pytest.raises(UserError, match=rf"^{side} 2 has {count} tokens; 1 to 5 fit$"):
        encode(["a", text])
    assert encode(["a " * 5]) == [[A] * 5]


def test_sources_without_targets_are_refused() -> None:
    with pytest.raises(UserError, match="got 2 sources, but 1 targets"):
        PAIRS.batch([[A], [B]], [[C]])
    with pytest.raises(UserError, match="got 2 prompts, but 1 continuations"):
        TEXT.batch([[A], [B]], [[C]])


def test_decode_takes_tensors_and_rows() -> None:
    rows = [[BOS, A, B, EOS, PAD], [BOS, C, EOS, PAD, PAD]]
    assert PAIRS.decode(rows) == PAIRS.decode(torch.tensor(rows)) == ["a b", "c"]
    assert PAIRS.pieces(rows[0]) == ["<bos>", "a", "b", "<eos>", "<pad>"]


def test_normalize_loses_what_the_tokenizer_loses() -> None:
    codec = PairCodec(WordPieces(120)(["What is a Café?"] * 3), max_length=9)
    assert codec.normalize(["What is  a Café ?"]) == ["what is a cafe?"]


# Templates.


def test_a_lone_underscore_is_a_blank() -> None:
    assert PAIRS.templates(PAIRS.encode_templates(["a _ _ b"])).tolist() == [[BOS, A, MASK, MASK, B, EOS]]
    assert PAIRS.templates(PAIRS.encode_templates(["_  b _"])).tolist() == [[BOS, MASK, B, MASK, EOS]]


def test_words_after_a_blank_are_encoded_as_in_running_text() -> None:
    """Byte-level tokens include the space before a word."""
    tokenizer = BytePairs(300)(["the cat sat on the mat_s"] * 20)
    codec = PairCodec(tokenizer, max_length=31)
    the, sat_on, mats = tokenizer.encode(["the", " sat on", " mat_s"])
    mask, bos, eos = codec.vocab.mask, codec.vocab.bos, codec.vocab.eos
    assert codec.templates(codec.encode_templates(["the _ sat on _ mat_s"])).tolist() == [
        [bos, *the, mask, *sat_on, mask, *mats, eos]
    ]
    assert [*the, *sat_on] != tokenizer.encode(["thesat on"])[0]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a a", "template: no blank in"),
        ("", "template: no blank in"),
        ("a_b", "template: no blank in"),
        ("_ nosuchword", "template: '_ nosuchword' has a word that is not in the vocabulary"),
        ("_ " * 6, "template: 6 tokens are too many; up to 5 fit"),
    ],
)
def test_invalid_templates_are_refused(template: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        PAIRS.templates(PAIRS.encode_templates([template]))


def test_template_of_open_ended_text_is_not_framed() -> None:
    assert TEXT.templates(TEXT.encode_templates(["a _", "_ a"])).tolist() == [[A, MASK], [MASK, A]]


# Open-ended text.


def test_documents_end_with_eos() -> None:
    assert TEXT.encode_corpus(["a b", "c"]) == [[A, B, EOS], [C, EOS]]
    assert PAIRS.encode_corpus(["a b", "c"]) == [[A, B], [C]]


def test_prompts() -> None:
    rows = TEXT.encode_sources(["a b c d", "c"])
    assert rows == [[A, B, C, D], [C]]
    assert TEXT.sources(rows[:1]).tolist() == rows[:1]
    for text, count in (("", 0), ("a b c d e", 5)):
        with pytest.raises(UserError, match=rf"^prompt 2 has {count} tokens; 1 to 4 fit$"):
            TEXT.encode_sources(["a", text])
    with pytest.raises(UserError, match=r"must be equally long, got \[1, 4\] tokens"):
        TEXT.sources(rows)


def test_prompt_is_a_prefix_of_the_target() -> None:
    batch = TEXT.batch([[A, B], [B, C]], TEXT.encode_targets(["c d a", "d a a"]))
    assert batch.source.tolist() == [[A, B], [B, C]]
    assert batch.target.tolist() == [[A, B, C, D, A], [B, C, D, A, A]]
    with pytest.raises(UserError, match=r"scored together must be equally long, got \[1, 3\] tokens"):
        TEXT.batch([[A, B], [B, C]], TEXT.encode_targets(["c d a", "d"]))
    with pytest.raises(UserError, match="prompt and continuation have 6 tokens; 5 fit"):
        TEXT.batch([[A, B]], [[A, B, C, D]])


# Saving.


def codecs() -> dict[str, Codec]:
    return {
        "words": PAIRS,
        "bytes": PairCodec(BytePairs(300)(["a small text"] * 5), max_length=12),
        "wordpieces": PairCodec(WordPieces(60)(["a small text"] * 5), max_length=7),
        "open-ended": OpenEndedCodec(WORDS, max_length=64),
    }


@pytest.mark.parametrize("name", codecs())
def test_a_saved_codec_is_the_same(name: str, tmp_path: Path) -> None:
    codec = codecs()[name]
    codec.save(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["codec.json", "tokenizer.json"]
    loaded = Codec.load(tmp_path)
    assert type(loaded) is type(codec)
    assert loaded.max_length == codec.max_length
    assert loaded.vocab == codec.vocab
    assert loaded.fingerprint() == codec.fingerprint()
    texts = ["a b", "small"]
    assert loaded.encode_corpus(texts) == codec.encode_corpus(texts)
    assert loaded.decode(loaded.encode_sources(texts)) == codec.decode(codec.encode_sources(texts))


def test_fingerprint_covers_kind_limit_and_tokenizer() -> None:
    other = Words()(["a b c"])
    variants = [PAIRS, TEXT, PairCodec(WORDS, max_length=6), PairCodec(other, max_length=5)]
    assert len({codec.fingerprint() for codec in variants}) == len(variants)
    assert PairCodec(WORDS, max_length=5).fingerprint() == PAIRS.fingerprint()


def test_kinds_are_the_classes_of_the_package() -> None:
    assert {"pairs": PairCodec, "open_ended": OpenEndedCodec} == KINDS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"codec\.json cannot be read \(JSONDecodeError\)"),
        (b"\xff", r"codec\.json cannot be read \(UnicodeDecodeError\)"),
        ([], r"codec\.json is not a codec: it needs the keys kind and max_length"),
        ({"kind": "pairs"}, "needs the keys kind and max_length"),
        ({"kind": "pairs", "max_length": 5, "_target_": "os.system"}, "needs the keys kind and max_length"),
        ({"kind": "os.system", "max_length": 5}, "'os.system' is not a kind of codec; there are pairs, open_ended"),
        ({"kind": ["pairs"], "max_length": 5}, "is not a kind of codec"),
        ({"kind": "pairs", "max_length": "5"}, "max_length must be a positive integer, got '5'"),
        ({"kind": "pairs", "max_length": True}, "max_length must be a positive integer, got True"),
        ({"kind": "pairs", "max_length": 0}, "max_length must be a positive integer, got 0"),
    ],
)
def test_a_damaged_codec_is_refused_in_one_line(content: Any, message: str, tmp_path: Path) -> None:
    PAIRS.save(tmp_path)
    raw = (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    (tmp_path / "codec.json").write_bytes(raw)
    with pytest.raises(UserError, match=message) as raised:
        Codec.load(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["codec.json", "tokenizer.json"])
def test_an_incomplete_codec_is_refused(name: str, tmp_path: Path) -> None:
    PAIRS.save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        Codec.load(tmp_path)


# With a data module.


def test_the_data_module_makes_a_codec_from_the_training_split(tmp_path: Path) -> None:
    data = pairs(tmp_path, InMemoryCorpus((["a b"], ["c"])), max_length=9)
    assert type(data.codec) is PairCodec
    assert (data.codec.max_length, data.vocab.size) == (9, 8)
    text = open_ended(tmp_path, InMemoryCorpus((["a b c d e f"],)), 3, prompt=1)
    assert type(text.codec) is OpenEndedCodec
    assert text.codec.max_length == 3


def test_a_codec_that_was_handed_in_is_used(tmp_path: Path) -> None:
    """Its tokenizer and length limit apply, and the training split is not read."""
    corpus = InMemoryCorpus((["a b", "b"], ["x", "y"]), (["a", "a a a a"], ["j", "i"]))
    data = pairs(tmp_path / "cache", corpus, max_length=31)
    data.use_codec(PairCodec(WORDS, max_length=3))
    assert data.codec.decode(data.examples("valid")[[0]].target) == ["j"]
    assert data.vocab == WORDS.vocab
    assert list(data.left_out("valid").values()) == [0, 1]
    assert data.questions("valid").cut == [False, True]
    assert set(corpus.reads) == {"valid"}
    assert not (tmp_path / "cache" / "tokenizers").exists()


def test_a_trained_model_does_not_need_the_vocabulary_file(tmp_path: Path) -> None:
    """Neither to use its codec nor to build its data module with it."""
    vocabulary = tmp_path / "outside" / "vocab.txt"
    vocabulary.parent.mkdir()
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s"]) + "\n")
    corpus, run = InMemoryCorpus((["the dogs"], ["dog"])), tmp_path / "run"
    run.mkdir()

    def module() -> PairsDataModule:
        return pairs(tmp_path / "cache", corpus, GivenWordPieces(str(vocabulary)), max_length=9)

    trained = module()
    trained.codec.save(run)
    expected = trained.examples("valid")[[0]]
    shutil.rmtree(vocabulary.parent)
    moved = run.rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / "cache")
    codec = Codec.load(moved)
    assert codec.decode(codec.sources(codec.encode_sources(["The DOGS"]))) == ["the dogs"]
    again = module()
    again.use_codec(codec)
    assert torch.equal(again.examples("valid")[[0]].source, expected.source)
    with pytest.raises(UserError, match=r"data\.tokenizer\.vocabulary: there is no .*vocab\.txt"):
        module().codec  # noqa: B018
