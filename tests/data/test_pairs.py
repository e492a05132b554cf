"""Data modules for tasks with a source and a target: preparation, what is left out, questions and sources."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rdm.data.corpus import JsonLines
from rdm.data.pairs import ParaphraseDataModule, QuestionGenerationDataModule, TranslationDataModule
from rdm.data.tokenizer import BytePairs, WordPieces, Words
from rdm.errors import UserError
from tests.builders import toy_data
from tests.data.helpers import Given, pairs

SMALL = (["a b", "b", "c c c"], ["x", "x y", "z"])


def entries(cache: Path, kind: str) -> int:
    return len([file for file in (cache / kind).iterdir() if not file.name.startswith(".")])


# Prepared once.


def test_a_second_module_reads_no_text(tmp_path: Path) -> None:
    """Neither for the tokenizer nor for the batches; and its batches are the same."""
    first, second = Given(SMALL, (["a"], ["z"])), Given(SMALL, (["a"], ["z"]))
    one, two = pairs(tmp_path, first), pairs(tmp_path, second)
    one.prepare_data()
    assert sorted(first.reads) == ["train", "train", "valid"]  # once for the tokenizer, once to encode
    assert torch.equal(one.examples("train")[[0, 1, 2]].target, two.examples("train")[[0, 1, 2]].target)
    assert [batch.ids.tolist() for batch in two.train_dataloader()]
    assert two.summary() == one.summary()
    assert two.fingerprint() == one.fingerprint()
    assert second.reads == []
    assert len(first.reads) == 3


def test_batches_come_from_mapped_files(tmp_path: Path) -> None:
    examples = pairs(tmp_path, Given(SMALL)).examples("train")
    assert isinstance(examples.sources.ids, np.memmap)
    assert isinstance(examples.targets.ids, np.memmap)


def test_another_text_or_tokenizer_is_another_entry(tmp_path: Path) -> None:
    pairs(tmp_path, Given(SMALL)).prepare_data()
    assert (entries(tmp_path, "tokenizers"), entries(tmp_path, "splits")) == (1, 1)  # train and valid are the same text
    pairs(tmp_path, Given(SMALL, (["a"], ["z"]))).prepare_data()
    assert (entries(tmp_path, "tokenizers"), entries(tmp_path, "splits")) == (1, 2)
    pairs(tmp_path, Given(SMALL), BytePairs(270)).prepare_data()
    assert (entries(tmp_path, "tokenizers"), entries(tmp_path, "splits")) == (2, 3)
    other = pairs(tmp_path, Given((["a d"], ["y"])))
    other.prepare_data()
    assert (entries(tmp_path, "tokenizers"), entries(tmp_path, "splits")) == (3, 4)
    assert other.tokenizer.decode(other.examples("train")[[0]].source.tolist()) == ["a d"]


def test_changed_files_are_seen(tmp_path: Path) -> None:
    """The cache follows the content of files, not their names."""
    for split in ("train", "valid"):
        (tmp_path / f"{split}.jsonl").write_text('{"src": "a", "trg": "b"}\n')
    before = pairs(tmp_path / "cache", JsonLines(str(tmp_path)))
    assert before.tokenizer.decode(before.examples("train")[[0]].target.tolist()) == ["b"]
    (tmp_path / "train.jsonl").write_text('{"src": "a", "trg": "c"}\n')
    after = pairs(tmp_path / "cache", JsonLines(str(tmp_path)))
    assert after.tokenizer.decode(after.examples("train")[[0]].target.tolist()) == ["c"]


def test_a_loaded_tokenizer_is_used(tmp_path: Path) -> None:
    """A run hands back its own; text is then encoded with it, and the training split is not read."""
    Words()(["z y x c b a"]).save(tmp_path / "tokenizer.json")
    corpus = Given(SMALL, (["a"], ["z"]))
    data = pairs(tmp_path / "cache", corpus)
    data.load_tokenizer(tmp_path / "tokenizer.json")
    assert data.tokenizer.decode(data.examples("valid")[[0]].target.tolist()) == ["z"]
    assert data.vocab.size == 11
    assert corpus.reads == ["valid"]
    assert not (tmp_path / "cache" / "tokenizers").exists()


def test_fingerprint(tmp_path: Path) -> None:
    """Of both splits and the tokenizer, each for itself."""
    first = pairs(tmp_path, Given(SMALL, (["a"], ["z"]))).fingerprint()
    assert first.keys() == {"train", "valid", "tokenizer"}
    other_valid = pairs(tmp_path, Given(SMALL, (["b"], ["z"]))).fingerprint()
    assert {name for name in first if first[name] != other_valid[name]} == {"valid"}
    other_train = pairs(tmp_path, Given((["b"], ["q"]), (["a"], ["z"]))).fingerprint()
    assert {name for name in first if first[name] != other_train[name]} == {"train", "tokenizer"}
    other_tokenizer = pairs(tmp_path, Given(SMALL, (["a"], ["z"])), BytePairs(270)).fingerprint()
    assert {name for name in first if first[name] != other_tokenizer[name]} == {"tokenizer"}


# What is left out.


def test_empty_and_overlong_pairs_are_left_out_of_training_and_counted(tmp_path: Path) -> None:
    """Every pair once: one with an empty side is empty, however long the other side is."""
    train = (["a", "", "a a a a", "a a a", "b", ""], ["x", "x", "x", "x x x x", "", "y y y y"])
    data = pairs(tmp_path, Given(train, (["a"], ["y"])), max_length=3)
    assert len(data.examples("train")) == 1
    assert data.examples("train")[[0]].target.shape == (1, 3)
    assert list(data.left_out("train").values()) == [3, 2]
    assert data.summary() == [
        "train: 1 examples, 3 left out, empty, 2 left out, longer than 3 tokens",
        "valid: 1 examples",
    ]


def test_indices_are_those_of_what_is_kept(tmp_path: Path) -> None:
    data = pairs(tmp_path, Given((["", "b", "c"], ["x", "y", "z"])), max_sentences=1)
    assert data.tokenizer.decode(data.examples("train")[[1, 0]].target.tolist()) == ["z", "y"]
    assert sorted(int(batch.ids) for batch in data.train_dataloader()) == [0, 1]


def test_an_empty_source_cannot_be_asked(tmp_path: Path) -> None:
    data = pairs(tmp_path, Given(SMALL, (["a", ""], ["x", "y"])))
    with pytest.raises(UserError, match="line 2 of the valid split has an empty source"):
        data.questions("valid")


def test_nothing_fits(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no pair of the train split has 1 to 2 tokens"):
        pairs(tmp_path, Given((["a a a", ""], ["x", "x"])), max_length=2).examples("train")


def test_overlap_is_told(tmp_path: Path) -> None:
    data = pairs(tmp_path, Given(SMALL, (["b", "a", "a b"], ["x y", "x", "x"])))
    assert data.summary() == ["train: 3 examples", "valid: 3 examples, 2 texts also in train"]


# Counts.


def test_target_counts_by_hand(tmp_path: Path) -> None:
    """Of targets alone, of what is kept alone, and without special symbols."""
    train = (["a x", "", "b b b b", "c"], ["x y x", "y", "y", "x q"])
    data = pairs(tmp_path, Given(train, (["q"], ["q"])), max_length=3)
    known = data.tokenizer.pieces(range(data.vocab.size))
    counts = dict(zip(known, data.target_counts().tolist(), strict=True))
    assert {piece: count for piece, count in counts.items() if count} == {"x": 3, "y": 1, "q": 1}
    assert len(counts) == data.vocab.size


def test_unknown_words_are_counted_as_unknown(tmp_path: Path) -> None:
    Words()(["a"]).save(tmp_path / "tokenizer.json")
    data = pairs(tmp_path, Given((["a"], ["a q q"])))
    data.load_tokenizer(tmp_path / "tokenizer.json")
    assert data.target_counts().tolist() == [0, 0, 0, 0, 2, 1]


# Questions and sources.


def test_questions_of_a_translation(tmp_path: Path) -> None:
    """In the order of the corpus, with its references as they are."""
    data = pairs(tmp_path, Given(SMALL, (["b a", "a"], ["X  y", "Z"])), kind=TranslationDataModule)
    questions = data.questions("valid")
    assert len(questions) == 2
    assert data.tokenizer.decode(questions.rows) == questions.sources == ["b a", "a"]
    assert questions.references == [["X  y", "Z"]]
    first = questions.first(1)
    assert (len(first), first.sources, first.references) == (1, ["b a"], [["X  y"]])
    assert questions.first(None) == questions


def test_questions_with_several_references() -> None:
    data = toy_data()
    questions = data.questions("valid")
    assert len(questions.references) == 8
    assert questions.references == data.corpus.references("valid")
    assert [len(side) for side in questions.first(3).references] == [3] * 8


@pytest.mark.parametrize("kind", [QuestionGenerationDataModule, ParaphraseDataModule])
def test_questions_scored_in_wordpiece(tmp_path: Path, kind: type[QuestionGenerationDataModule]) -> None:
    """References lose what the tokenizer loses, so that a perfect output is compared with itself; sources stay."""
    texts = (["A Café is what ?"] * 3, ["What is a Café?"] * 3)
    data = pairs(tmp_path, Given(texts), WordPieces(120), kind=kind)
    questions = data.questions("test")
    assert questions.sources == texts[0]
    assert questions.references == [["what is a cafe?"] * 3]
    assert data.tokenizer.decode(data.examples("test")[[0]].target.tolist()) == ["what is a cafe?"]


def test_sources_are_framed_as_in_training() -> None:
    data = toy_data()
    batch = data.examples("train")[[3, 4, 5]]
    texts = data.corpus.read("train")[0][3:6]
    assert torch.equal(data.sources(data.encode_sources(texts)), batch.source)


def test_unknown_words_are_taken_as_unknown() -> None:
    data = toy_data()
    (row,) = data.sources(data.encode_sources(["zzz"])).tolist()
    assert row == [data.vocab.bos, data.vocab.unk, data.vocab.eos]


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


@pytest.mark.parametrize(("text", "count"), [("", 0), ("   ", 0), ("tata " * 40, 40)])
def test_source_that_does_not_fit(text: str, count: int) -> None:
    with pytest.raises(UserError, match=rf"^source 2 has {count} tokens; 1 to 31 fit$"):
        toy_data().encode_sources(["tata", text])
    assert len(toy_data().encode_sources(["tata " * 31])[0]) == 31
