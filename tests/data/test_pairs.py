"""Data modules for tasks with a source: caching, filtering, counts, evaluation questions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rdm.data.codec import PairCodec
from rdm.data.corpus import JsonLines
from rdm.data.pairs import ParaphraseDataModule, QuestionGenerationDataModule, TranslationDataModule
from rdm.data.tokenizer import BytePairs, WordPieces, Words
from rdm.errors import UserError
from tests.builders import toy_data
from tests.data.helpers import InMemoryCorpus, pairs

SMALL = (["a b", "b", "c c c"], ["x", "x y", "z"])


def entries(cache: Path, kind: str) -> int:
    return len([file for file in (cache / kind).iterdir() if not file.name.startswith(".")])


# Caching.


def test_a_second_module_reads_from_the_cache(tmp_path: Path) -> None:
    """No text is read for the tokenizer or the batches, and the batches are the same."""
    first, second = InMemoryCorpus(SMALL, (["a"], ["z"])), InMemoryCorpus(SMALL, (["a"], ["z"]))
    one, two = pairs(tmp_path, first), pairs(tmp_path, second)
    one.prepare_data()
    assert sorted(first.reads) == ["train", "train", "valid"]  # once for the tokenizer, once to encode
    assert torch.equal(one.examples("train")[[0, 1, 2]].target, two.examples("train")[[0, 1, 2]].target)
    assert [batch.ids.tolist() for batch in two.train_dataloader()]
    assert two.summary() == one.summary()
    assert two.fingerprint() == one.fingerprint()
    assert second.reads == []
    assert len(first.reads) == 3


def test_batches_are_read_from_memory_mapped_files(tmp_path: Path) -> None:
    examples = pairs(tmp_path, InMemoryCorpus(SMALL)).examples("train")
    assert isinstance(examples.sources.ids, np.memmap)
    assert isinstance(examples.targets.ids, np.memmap)


def test_cache_entries_are_keyed_by_text_and_tokenizer(tmp_path: Path) -> None:
    pairs(tmp_path, InMemoryCorpus(SMALL)).prepare_data()
    assert (entries(tmp_path, "tokenizers"), entries(tmp_path, "splits")) == (1, 1)  # train and valid are the same text
    pairs(tmp_path, InMemoryCorpus(SMALL, (["a"], ["z"]))).prepare_data()
    assert (entries(tmp_path, "tokenizers"), entries(tmp_path, "splits")) == (1, 2)
    pairs(tmp_path, InMemoryCorpus(SMALL), BytePairs(270)).prepare_data()
    assert (entries(tmp_path, "tokenizers"), entries(tmp_path, "splits")) == (2, 3)
    other = pairs(tmp_path, InMemoryCorpus((["a d"], ["y"])))
    other.prepare_data()
    assert (entries(tmp_path, "tokenizers"), entries(tmp_path, "splits")) == (3, 4)
    assert other.codec.decode(other.examples("train")[[0]].source.tolist()) == ["a d"]


def test_changed_files_invalidate_the_cache(tmp_path: Path) -> None:
    """Keys are hashes of the content of files, not of their names."""
    for split in ("train", "valid"):
        (tmp_path / f"{split}.jsonl").write_text('{"src": "a", "trg": "b"}\n')
    before = pairs(tmp_path / "cache", JsonLines(str(tmp_path)))
    assert before.codec.decode(before.examples("train")[[0]].target.tolist()) == ["b"]
    (tmp_path / "train.jsonl").write_text('{"src": "a", "trg": "c"}\n')
    after = pairs(tmp_path / "cache", JsonLines(str(tmp_path)))
    assert after.codec.decode(after.examples("train")[[0]].target.tolist()) == ["c"]


def test_fingerprint_covers_splits_and_tokenizer_separately(tmp_path: Path) -> None:
    first = pairs(tmp_path, InMemoryCorpus(SMALL, (["a"], ["z"]))).fingerprint()
    assert first.keys() == {"train", "valid", "tokenizer"}
    other_valid = pairs(tmp_path, InMemoryCorpus(SMALL, (["b"], ["z"]))).fingerprint()
    assert {name for name in first if first[name] != other_valid[name]} == {"valid"}
    other_train = pairs(tmp_path, InMemoryCorpus((["b"], ["q"]), (["a"], ["z"]))).fingerprint()
    assert {name for name in first if first[name] != other_train[name]} == {"train", "tokenizer"}
    other_tokenizer = pairs(tmp_path, InMemoryCorpus(SMALL, (["a"], ["z"])), BytePairs(270)).fingerprint()
    assert {name for name in first if first[name] != other_tokenizer[name]} == {"tokenizer"}


# Filtering.


def test_empty_and_overlong_pairs_are_left_out_of_training_and_counted(tmp_path: Path) -> None:
    """A pair is counted once; one with an empty side is empty however long the other side is."""
    train = (["a", "", "a a a a", "a a a", "b", ""], ["x", "x", "x", "x x x x", "", "y y y y"])
    data = pairs(tmp_path, InMemoryCorpus(train, (["a"], ["y"])), max_length=3)
    assert len(data.examples("train")) == 1
    assert data.examples("train")[[0]].target.shape == (1, 3)
    assert list(data.left_out("train").values()) == [3, 2]
    assert data.summary() == [
        "train: 1 examples, 3 left out, empty, 2 left out, longer than 3 tokens",
        "valid: 1 examples",
    ]


def test_indices_refer_to_the_kept_pairs(tmp_path: Path) -> None:
    data = pairs(tmp_path, InMemoryCorpus((["", "b", "c"], ["x", "y", "z"])), max_sentences=1)
    assert data.codec.decode(data.examples("train")[[1, 0]].target.tolist()) == ["z", "y"]
    assert sorted(int(batch.ids) for batch in data.train_dataloader()) == [0, 1]


def test_an_empty_source_cannot_be_evaluated(tmp_path: Path) -> None:
    data = pairs(tmp_path, InMemoryCorpus(SMALL, (["a", ""], ["x", "y"])))
    with pytest.raises(UserError, match="example 2 of the valid split has an empty source"):
        data.questions("valid")


def test_a_split_without_usable_pairs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no pair of the train split has 1 to 2 tokens"):
        pairs(tmp_path, InMemoryCorpus((["a a a", ""], ["x", "x"])), max_length=2).examples("train")


def test_summary_reports_overlap_with_train(tmp_path: Path) -> None:
    data = pairs(tmp_path, InMemoryCorpus(SMALL, (["b", "a", "a b"], ["x y", "x", "x"])))
    assert data.summary() == ["train: 3 examples", "valid: 3 examples, 2 texts also in train"]


# Counts.


def test_target_counts_by_hand(tmp_path: Path) -> None:
    """Only targets of kept pairs are counted, without special symbols."""
    train = (["a x", "", "b b b b", "c"], ["x y x", "y", "y", "x q"])
    data = pairs(tmp_path, InMemoryCorpus(train, (["q"], ["q"])), max_length=3)
    known = data.codec.pieces(range(data.vocab.size))
    counts = dict(zip(known, data.target_counts().tolist(), strict=True))
    assert {piece: count for piece, count in counts.items() if count} == {"x": 3, "y": 1, "q": 1}
    assert len(counts) == data.vocab.size


def test_unknown_words_are_counted_as_unknown(tmp_path: Path) -> None:
    data = pairs(tmp_path, InMemoryCorpus((["a"], ["a q q"])))
    data.use_codec(PairCodec(Words()(["a"]), max_length=31))
    assert data.target_counts().tolist() == [0, 0, 0, 0, 2, 1]


# Evaluation questions.


def test_questions_of_a_translation(tmp_path: Path) -> None:
    """In the order of the corpus, with unchanged references."""
    data = pairs(tmp_path, InMemoryCorpus(SMALL, (["b a", "a"], ["X  y", "Z"])), kind=TranslationDataModule)
    questions = data.questions("valid")
    assert len(questions) == 2
    assert data.codec.decode(questions.rows) == questions.sources == ["b a", "a"]
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
    """References are normalised by the tokenizer, so that a perfect output equals its reference."""
    texts = (["A Café is what ?"] * 3, ["What is a Café?"] * 3)
    data = pairs(tmp_path, InMemoryCorpus(texts), WordPieces(120), kind=kind)
    questions = data.questions("test")
    assert questions.sources == texts[0]
    assert questions.references == [["what is a cafe?"] * 3]
    assert data.codec.decode(data.examples("test")[[0]].target.tolist()) == ["what is a cafe?"]


def test_long_pairs_are_left_out_and_long_sources_truncated() -> None:
    """Left-out pairs are counted; in evaluation every source is kept."""
    data = toy_data(train=64, max_length=10)
    longest = max(len(text.split()) for side in data.corpus.read("train") for text in side)
    assert longest > 10
    kept, (empty, too_long) = len(data.examples("train")), data.left_out("train").values()
    assert 0 < kept < 64
    assert (empty, too_long) == (0, 64 - kept)
    assert f"{too_long} left out, longer than 10 tokens" in data.summary()[0]
    questions = data.questions("valid")
    assert len(questions) == 8
    assert questions.cut == [len(text.split()) > 10 for text in questions.sources]
    assert any(questions.cut)
    assert max(map(len, questions.rows)) == 10
    with pytest.raises(UserError, match="no pair of the train split"):
        toy_data(train=64, max_length=1).examples("train")
