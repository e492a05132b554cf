"""The data module: tokenizer, splits, sources typed by a user."""

from pathlib import Path

import pytest

from rdm.data.tokenizer import BytePairs, Tokenizer, TokenizerTrainer, WordPieces, Words
from rdm.errors import UserError
from tests.builders import toy_data


def test_tokenizer_round_trip(tmp_path: Path) -> None:
    data = toy_data()
    texts = data.corpus.read("train")[1]
    assert data.tokenizer.decode(data.tokenizer.encode(texts)) == texts
    data.tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.vocab == data.vocab
    assert loaded.encode(texts) == data.tokenizer.encode(texts)


def test_specials_are_distinct_and_no_word_has_their_id() -> None:
    data = toy_data()
    specials = set(data.vocab.specials)
    assert len(specials) == 5
    used = {index for row in data.tokenizer.encode(data.corpus.read("train")[0]) for index in row}
    assert not used & specials
    assert max(used) < data.vocab.size


@pytest.mark.parametrize("text", ["", "   ", "tata " * 40])
def test_source_that_does_not_fit(text: str) -> None:
    with pytest.raises(UserError, match="1 to 31 fit"):
        toy_data().encode_sources([text])


def test_unknown_words_are_taken_as_unknown() -> None:
    data = toy_data()
    (row,) = data.sources(data.encode_sources(["zzz"])).tolist()
    assert row == [data.vocab.bos, data.vocab.unk, data.vocab.eos]


def test_target_counts() -> None:
    data = toy_data()
    counts = data.target_counts()
    assert len(counts) == data.vocab.size
    words = [word for text in data.corpus.read("train")[1] for word in text.split()]
    assert int(counts.sum()) == len(words)
    (stop,) = data.tokenizer.encode(["."])[0]
    assert int(counts[stop]) == words.count(".")


ODD = ["naïve café — 10€?", "tabs\tand  double  spaces", "emoji 👩‍👩‍👧 and שלום", "<mask> <pad> <bos>", "日本語の文"]


def test_byte_pairs_give_back_what_went_in(tmp_path: Path) -> None:
    """Any text, also characters and special-looking words never seen in training, also after saving and loading."""
    tokenizer = BytePairs(300)(["a small text", "another small text"] * 10)
    tokenizer.save(tmp_path / "tokenizer.json")
    for version in (tokenizer, Tokenizer.load(tmp_path / "tokenizer.json")):
        ids = version.encode(ODD)
        assert version.decode(ids) == ODD
        assert not set(version.vocab.specials) & {index for row in ids for index in row}


@pytest.mark.parametrize("trainer", [Words(), BytePairs(400), WordPieces(100)])
def test_tokenizers_have_the_same_specials(trainer: TokenizerTrainer) -> None:
    tokenizer = trainer(["one two three four", "five six seven eight"] * 20)
    assert tokenizer.vocab.specials == (0, 1, 2, 3, 4)
    assert tokenizer.decode(tokenizer.encode(["one six"])) == ["one six"]
    assert tokenizer.decode([[2, *tokenizer.encode(["two"])[0], 3, 0, 0]]) == ["two"]


def test_byte_vocabulary_must_hold_all_bytes() -> None:
    with pytest.raises(UserError, match="at least 261"):
        BytePairs(200)


def test_overlong_lines() -> None:
    """Left out of batches and counted; in evaluation every source is asked, a long one without its end."""
    data = toy_data(train=64, max_length=10)
    longest = max(len(text.split()) for side in data.corpus.read("train") for text in side)
    assert longest > 10
    kept, (empty, too_long) = len(data.examples("train")), data.left_out("train").values()
    assert 0 < kept < 64
    assert (empty, too_long) == (0, 64 - kept)
    assert f"{too_long} left out, longer than 10 tokens" in data.summary()[0]
    asked = data.questions("valid")
    assert len(asked) == 8
    assert asked.cut == [len(text.split()) > 10 for text in asked.sources]
    assert any(asked.cut)
    assert max(map(len, asked.rows)) == 10
    with pytest.raises(UserError, match="no pair of the train split"):
        toy_data(train=64, max_length=1).examples("train")


def test_template() -> None:
    """A ``_`` that stands alone is a blank of one token; everything else is text."""
    data = toy_data()
    first, second = data.corpus.read("train")[1][0].split()[:2]
    a, b = data.tokenizer.encode([f"{first} {second}"])[0]
    mask, bos, eos = data.vocab.mask, data.vocab.bos, data.vocab.eos
    assert data.template(f"{first} _ _ {second}").tolist() == [[bos, a, mask, mask, b, eos]]
    assert data.template(f"_  {second} _").tolist() == [[bos, mask, b, mask, eos]]


def test_template_of_byte_pairs() -> None:
    """A word after a blank is what it is in running text: with its space."""
    data = toy_data()
    data._tokenizer = tokenizer = BytePairs(300)(["the cat sat on the mat_s"] * 20)
    the, sat_on, mats = tokenizer.encode(["the", " sat on", " mat_s"])
    mask, bos, eos = data.vocab.mask, data.vocab.bos, data.vocab.eos
    assert data.template("the _ sat on _ mat_s").tolist() == [[bos, *the, mask, *sat_on, mask, *mats, eos]]
    assert [*the, *sat_on] != tokenizer.encode(["thesat on"])[0]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{word} {word}", "template: no blank in"),
        ("", "template: no blank in"),
        ("a_b", "template: no blank in"),
        ("_ nosuchword", "template: '_ nosuchword' has a word that is not in the vocabulary"),
        ("_ " * 32, "template: 32 tokens are too many; up to 31 fit"),
    ],
)
def test_wrong_templates(template: str, message: str) -> None:
    data = toy_data()
    with pytest.raises(UserError, match=message):
        data.template(template.format(word=data.corpus.read("train")[1][0].split()[0]))
