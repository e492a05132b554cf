"""The data module: tokenizer, splits, sources typed by a user."""

from pathlib import Path

import pytest

from rdm.data.tokenizer import Tokenizer
from rdm.errors import UserError
from tests.builders import toy_data


def test_tokenizer_round_trip(tmp_path: Path) -> None:
    data = toy_data()
    texts = data.texts("train")[1]
    assert data.tokenizer.decode(data.tokenizer.encode(texts)) == texts
    data.tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.vocab == data.vocab
    assert loaded.encode(texts) == data.tokenizer.encode(texts)


def test_specials_are_distinct_and_no_word_has_their_id() -> None:
    data = toy_data()
    specials = set(data.vocab.specials)
    assert len(specials) == 5
    used = {index for row in data.tokenizer.encode(data.texts("train")[0]) for index in row}
    assert not used & specials
    assert max(used) < data.vocab.size


@pytest.mark.parametrize("text", ["", "   ", "tata " * 40])
def test_source_that_does_not_fit(text: str) -> None:
    with pytest.raises(UserError, match="1 to 31 fit"):
        toy_data().sources([text])


def test_unknown_words_are_taken_as_unknown() -> None:
    data = toy_data()
    (row,) = data.sources(["zzz"]).tolist()
    assert row == [data.vocab.bos, data.vocab.unk, data.vocab.eos]


def test_target_counts() -> None:
    data = toy_data()
    counts = data.target_counts()
    assert len(counts) == data.vocab.size
    words = [word for text in data.texts("train")[1] for word in text.split()]
    assert int(counts.sum()) == len(words)
    (stop,) = data.tokenizer.encode(["."])[0]
    assert int(counts[stop]) == words.count(".")
