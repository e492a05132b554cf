"""Batches hold the rows they should, framed and padded."""

import numpy as np
import pytest

from rdm.data.examples import Pairs, Windows
from rdm.data.ragged import Ragged
from rdm.vocab import Vocab
from tests.builders import batch_of, toy_data


def test_batch_of_pairs_is_framed() -> None:
    data = toy_data(train=20)
    batch = data.examples("train")[[0, 1, 2]]
    vocab = data.vocab
    assert (batch.target[:, 0] == vocab.bos).all()
    assert ((batch.target == vocab.eos).sum(1) == 1).all()
    lengths = [len(target.split()) for target in data.corpus.read("train")[1][:3]]
    assert int((batch.target != vocab.pad).sum()) == sum(lengths) + 6
    assert data.codec.decode(batch.source) == data.corpus.read("train")[0][:3]
    assert batch.counts == {}


def test_counts_by_unit() -> None:
    """The formulas of the denominators: sentences, tokens, next tokens and ordinary tokens."""
    data = toy_data(train=20)
    lengths = [len(target.split()) for target in data.corpus.read("train")[1][:3]]
    counts = {name: int(count) for name, count in batch_of(data, [0, 1, 2]).counts.items()}
    ordinary = sum(lengths)
    assert counts == {"sentences": 3, "tokens": ordinary + 6, "next": ordinary + 3, "ordinary": ordinary}


@pytest.mark.parametrize("indices", [[0, 1, 2], [2, 0], [1]])
def test_pairs_by_hand(indices: list[int]) -> None:
    """Each side is framed and padded on its own; only rows of the split are used."""
    vocab = Vocab(size=20)
    sources, targets = [[5], [6, 7, 8], [], [9, 10]], [[11, 12], [13], [14], [15, 4, 16]]
    examples = Pairs(vocab, Ragged.from_rows(sources), Ragged.from_rows(targets), np.array([3, 0, 1]))
    assert len(examples) == 3
    assert examples.lengths().tolist() == [[4, 5], [3, 4], [5, 3]]
    assert np.concatenate(list(examples.target_ids())).tolist() == [11, 12, 13, 15, 4, 16]
    batch = examples[indices]
    for side, rows in ((batch.source, sources), (batch.target, targets)):
        kept = [rows[[3, 0, 1][index]] for index in indices]
        longest = max(map(len, kept))
        assert side.tolist() == [[2, *row, 3] + [0] * (longest - len(row)) for row in kept]
    assert batch.ids.tolist() == indices


def test_padding_to_a_multiple() -> None:
    """Widths are multiples up to the maximum length, and lengths include the padding."""
    vocab, rows = Vocab(size=20), [[5] * length for length in (1, 5, 7, 9)]
    examples = Pairs(vocab, Ragged.from_rows(rows), Ragged.from_rows(rows), np.arange(4), multiple=8, widest=11)
    assert examples.lengths().tolist() == [[8, 8], [8, 8], [11, 11], [11, 11]]
    for indices, width in (([0], 8), ([0, 1], 8), ([1, 2], 11), ([3], 11)):
        batch = examples[indices]
        assert batch.source.shape == batch.target.shape == (len(indices), width)
        assert int((batch.target != vocab.pad).sum()) == sum(len(rows[index]) + 2 for index in indices)
    assert all(batch.target.shape[1] % 8 == 0 for batch in toy_data(pad_to_multiple=8).train_dataloader())


def test_windows_have_an_empty_source() -> None:
    rows = np.array([[5, 6, 3, 7, 8], [9, 10, 11, 3, 3]], dtype=np.int32)
    examples = Windows(rows)
    batch = examples[[1, 0]]
    assert batch.source.shape == (2, 0)
    assert batch.target.tolist() == rows[::-1].tolist()
    assert batch.ids.tolist() == [1, 0]
    assert examples.lengths().tolist() == [[0, 5], [0, 5]]
    assert np.concatenate(list(examples.target_ids())).tolist() == rows.reshape(-1).tolist()
