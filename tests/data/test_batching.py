"""Batches hold what they should, in an order that follows from seed and epoch, shared out over ranks without loss."""

from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.data.batching import LengthBatches, with_step_counts
from rdm.errors import UserError
from tests.builders import batch_of, toy_data

sizes = st.lists(st.tuples(st.integers(3, 30), st.integers(3, 30)), min_size=1, max_size=60)


@given(sizes=sizes, max_tokens=st.integers(30, 200), world=st.integers(1, 4), epoch=st.integers(0, 3))
@settings(deadline=None, derandomize=True)
def test_training_batches(sizes: list[tuple[int, int]], max_tokens: int, world: int, epoch: int) -> None:
    """Within budget; every sentence seen; ranks make equal numbers of steps; only filling batches are repeated."""
    lengths = torch.tensor(sizes)
    ranks = []
    for rank in range(world):
        batches = LengthBatches(lengths, max_tokens, shuffle=True, seed=5, rank=rank, world_size=world)
        batches.set_epoch(epoch)
        ranks.append(list(batches))
        assert len(ranks[-1]) == len(batches)
    assert len({len(batches) for batches in ranks}) == 1
    for batch in chain(*ranks):
        assert len(batch) * int(lengths[batch].max()) <= max_tokens
    distinct = {tuple(batch) for batch in chain(*ranks)}
    assert sorted(chain(*distinct)) == list(range(len(sizes)))
    assert sum(len(batches) for batches in ranks) - len(distinct) < world


@given(sizes=sizes, world=st.integers(1, 4))
@settings(deadline=None, derandomize=True)
def test_evaluation_batches_hold_every_sentence_once(sizes: list[tuple[int, int]], world: int) -> None:
    lengths = torch.tensor(sizes)
    ranks = [list(LengthBatches(lengths, max_sentences=7, rank=rank, world_size=world)) for rank in range(world)]
    assert sorted(chain(*chain(*ranks))) == list(range(len(sizes)))
    assert all(len(batch) <= 7 for batch in chain(*ranks))


def test_order_follows_from_seed_and_epoch() -> None:
    lengths = torch.randint(3, 30, (200, 2), generator=torch.Generator().manual_seed(0))

    def order(seed: int, epoch: int) -> list[list[int]]:
        batches = LengthBatches(lengths, 100, shuffle=True, seed=seed)
        batches.set_epoch(epoch)
        return list(batches)

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_little_padding() -> None:
    data = toy_data(train=2000, max_tokens=2048)
    tokens = padded = 0
    for batch in data.train_dataloader():
        tokens += int((batch.target != data.vocab.pad).sum())
        padded += batch.target.numel()
    assert tokens / padded > 0.95


def test_batch_is_framed_and_counted() -> None:
    data = toy_data(train=20)
    batch = batch_of(data, [0, 1, 2])
    vocab = data.vocab
    assert (batch.target[:, 0] == vocab.bos).all()
    assert ((batch.target == vocab.eos).sum(1) == 1).all()
    lengths = [len(target.split()) for target in data.corpus.read("train")[1][:3]]
    assert int(batch.counts["ordinary"]) == sum(lengths)
    assert int(batch.counts["tokens"]) == sum(lengths) + 6
    assert int(batch.counts["sentences"]) == 3
    assert data.tokenizer.decode(batch.source.tolist()) == data.corpus.read("train")[0][:3]


def test_step_counts_are_those_of_all_micro_batches() -> None:
    data = toy_data(train=20)
    step = [batch_of(data, [0, 1, 2]), batch_of(data, [3, 4])]
    whole = batch_of(data, [0, 1, 2, 3, 4])
    for batch in with_step_counts(step):
        assert {name: int(count) for name, count in batch.counts.items()} == {
            name: int(count) for name, count in whole.counts.items()
        }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "data.max_tokens or data.max_sentences"),
        ({"max_tokens": 0}, "at least 1"),
        ({"max_sentences": 0}, "at least 1"),
        ({"max_tokens": 5}, "longest sentence has 9 tokens"),
    ],
)
def test_bad_sizes(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LengthBatches(torch.tensor([[9, 3]]), **options)
