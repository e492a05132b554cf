"""Text without a source: packing, prompts and their references."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from rdm.data.corpus import Documents, Lines
from rdm.data.open_ended import OpenEndedDataModule
from rdm.data.toy import ToyText
from rdm.errors import UserError
from tests.data.helpers import InMemoryCorpus, open_ended, pairs

DOCUMENTS = (["a b c\nd", "e", "f g h i j k l m", "n o p"],)
PACKED = [*"abcd", "<eos>", "e", "<eos>", *"fghijklm", "<eos>", *"nop", "<eos>"]  # 20 tokens


def pieces(data: OpenEndedDataModule, rows: np.ndarray) -> list[list[str]]:
    return [data.codec.pieces(row.tolist()) for row in rows]


@pytest.mark.parametrize("length", [3, 4, 5, 7, 20])
def test_packed_by_hand(tmp_path: Path, length: int) -> None:
    """``<eos>`` follows every document; tokens that fill no window are left out and counted."""
    data = open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), length, prompt=1)
    count = 20 // length
    assert pieces(data, data.windows("train")) == [PACKED[i * length : (i + 1) * length] for i in range(count)]
    assert data.left_out("train") == {"tokens left out at the end": 20 - count * length}
    assert len(data.examples("train")) == count


def test_summary_reports_tokens_left_out(tmp_path: Path) -> None:
    data = open_ended(tmp_path, InMemoryCorpus(DOCUMENTS, (["a b c d e f"],)), 6, prompt=1)
    assert data.summary() == [
        "train: 3 examples, 2 tokens left out at the end",
        "valid: 1 examples, 1 tokens left out at the end",
    ]


def test_windows_are_views_of_the_memory_mapped_file(tmp_path: Path) -> None:
    data = open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), 6, prompt=1)
    windows = data.windows("train")
    assert isinstance(windows, np.memmap)
    assert np.shares_memory(windows, data.prepared("train").columns[0].ids)
    assert data.examples("train").windows.base is not None


def test_pairs_and_documents_do_not_share_a_cache_entry(tmp_path: Path) -> None:
    """Only documents are stored with ``<eos>``."""
    documents = open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), 6, prompt=1)
    sentences = pairs(tmp_path, InMemoryCorpus(DOCUMENTS))
    assert documents.vocab == sentences.vocab
    first, second = (data.prepared("train").columns[0].ids for data in (documents, sentences))
    assert first.filename != second.filename
    assert documents.vocab.eos in first
    assert documents.vocab.eos not in second


def test_training_batches_have_an_empty_prefix(tmp_path: Path) -> None:
    data = open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), 4, prompt=1, max_sentences=2)
    batches = list(data.train_dataloader())
    assert sorted(tuple(batch.source.shape) for batch in batches) == [(1, 0), (2, 0), (2, 0)]
    assert sorted(chain(*(batch.ids.tolist() for batch in batches))) == [0, 1, 2, 3, 4]
    for batch in batches:
        assert batch.target.dtype == torch.int64
        assert batch.target.tolist() == data.windows("train")[batch.ids.tolist()].tolist()
        assert int(batch.counts["tokens"]) == batch.target.numel()


def test_target_counts(tmp_path: Path) -> None:
    """All tokens of a window are targets, ``<eos>`` too; the remainder of the split is not."""
    data = open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), 6, prompt=1)
    counts = data.target_counts()
    assert int(counts.sum()) == 18
    assert int(counts[data.vocab.eos]) == 3
    (last,) = data.codec.tokenizer.encode(["p"])[0]
    assert int(counts[last]) == 0


# Prompts.


def test_prompts_by_hand(tmp_path: Path) -> None:
    """A window is used if its prompt and the next token belong to one document."""
    data = open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), 5, prompt=2)
    # a b c d <eos> | e <eos> f g h | i j k l m | <eos> n o p <eos>
    questions = data.questions("test")
    assert questions.sources == ["a b", "i j"]
    assert questions.references == [["c d", "k l m"]]
    assert [data.codec.pieces(row) for row in questions.rows] == [["a", "b"], ["i", "j"]]
    assert data.codec.sources(questions.rows).shape == (2, 2)


@pytest.mark.parametrize("continuation", [1, 2, 100])
def test_references_have_at_most_continuation_tokens(tmp_path: Path, continuation: int) -> None:
    data = open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), 5, prompt=2, continuation=continuation)
    assert data.questions("test").references == [[" ".join("cd"[:continuation]), " ".join("klm"[:continuation])]]


def test_prompts_never_cross_a_document(tmp_path: Path) -> None:
    """Compared with a loop over all windows of a larger text."""
    data = open_ended(tmp_path, ToyText(20, 20, 20), 32, prompt=8, continuation=10)
    questions = data.questions("valid")
    expected = []
    for window in data.windows("valid").tolist():
        begins = window[:9]
        if data.vocab.eos not in begins:
            follows = window[8:18]
            end = follows.index(data.vocab.eos) if data.vocab.eos in follows else 10
            expected.append((window[:8], data.codec.decode([follows[:end]])[0]))
    assert 0 < len(questions) < len(data.windows("valid"))
    assert list(zip(questions.rows, questions.references[0], strict=True)) == expected
    assert all(len(row) == 8 for row in questions.rows)
    assert all(questions.references[0])


# Errors.


def test_a_split_shorter_than_a_window_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the valid split has 3 tokens, fewer than data\.length=5"):
        open_ended(tmp_path, InMemoryCorpus(DOCUMENTS, (["a b"],)), 5, prompt=2).examples("valid")


@pytest.mark.parametrize("prompt", [0, -1, 5, 6])
def test_invalid_prompt_is_refused(tmp_path: Path, prompt: int) -> None:
    with pytest.raises(UserError, match=rf"data\.prompt must lie between 0 and data\.length=5, got {prompt}"):
        open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), 5, prompt)


def test_invalid_continuation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"continuation must be at least 1, got 0"):
        open_ended(tmp_path, InMemoryCorpus(DOCUMENTS), 5, prompt=2, continuation=0)


def test_a_split_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no window of the test split begins inside a document"):
        open_ended(tmp_path, InMemoryCorpus((["a", "b", "c"],)), 3, prompt=2).questions("test")


def test_a_file_of_blank_lines_is_refused(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text("\n \n\n")
    data = open_ended(tmp_path, Documents(Lines(str(tmp_path), "train.txt", "valid.txt", None)), 3, prompt=2)
    with pytest.raises(UserError, match="the train split has no text"):
        data.prepare_data()
