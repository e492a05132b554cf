"""The batch sampler: budgets hold, no sentence is lost, order depends on seed and epoch alone."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.data.length_batches import LengthBatches, fill_batches
from rdm.errors import UserError
from tests.builders import toy_data

sizes = st.lists(st.tuples(st.integers(3, 30), st.integers(3, 30)), min_size=1, max_size=60)


@given(sizes=sizes, max_tokens=st.integers(30, 200), world=st.integers(1, 4), epoch=st.integers(0, 3))
@settings(deadline=None, derandomize=True)
def test_training_batches_are_partitioned_over_ranks(
    sizes: list[tuple[int, int]], max_tokens: int, world: int, epoch: int
) -> None:
    """All sentences are seen; ranks have equally many batches; fewer than ``world`` are repeated."""
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


def test_order_depends_on_seed_and_epoch() -> None:
    lengths = torch.randint(3, 30, (200, 2), generator=torch.Generator().manual_seed(0))

    def order(seed: int, epoch: int) -> list[list[int]]:
        batches = LengthBatches(lengths, 100, shuffle=True, seed=seed)
        batches.set_epoch(epoch)
        return list(batches)

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


@given(sizes=sizes, max_tokens=st.integers(30, 200), max_sentences=st.integers(1, 9))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_batches_fill_both_budgets(sizes: list[tuple[int, int]], max_tokens: int, max_sentences: int) -> None:
    """No batch has room for the first sentence of the next one."""
    lengths = torch.tensor(sizes)
    batches = LengthBatches(lengths, max_tokens, max_sentences)
    assert sorted(chain(*batches)) == list(range(len(sizes)))
    for batch, following in zip(batches.batches, [*batches.batches[1:], None], strict=True):
        assert len(batch) <= max_sentences
        assert len(batch) * int(lengths[batch].max()) <= max_tokens
        if following is not None:
            grown = [*batch, following[0]]
            assert len(grown) > max_sentences or len(grown) * int(lengths[grown].max()) > max_tokens


@given(st.lists(st.integers(0, 20), max_size=50), st.integers(20, 90), st.integers(1, 9))
@settings(deadline=None, derandomize=True)
def test_batches_are_filled_as_by_a_loop(lengths: list[int], max_tokens: int, max_sentences: int) -> None:
    ends: list[int] = []
    size = longest = 0
    for index, length in enumerate(lengths):
        longest = max(longest, length)
        if size == max_sentences or (size + 1) * longest > max_tokens:
            ends.append(index)
            size, longest = 0, length
        size += 1
    ends += [len(lengths)] if lengths else []
    assert fill_batches(np.array(lengths), max_tokens, max_sentences).tolist() == ends


def test_number_of_batches_is_the_same_in_every_epoch() -> None:
    """On resume the position within the epoch is loaded before the epoch is set."""
    lengths = torch.randint(3, 30, (300, 2), generator=torch.Generator().manual_seed(0))
    batches = LengthBatches(lengths, 90, shuffle=True)
    counts = set()
    for epoch in range(8):
        batches.set_epoch(epoch)
        counts.add(len(batches))
    assert len(counts) == 1


def test_evaluation_order_is_fixed_and_descending() -> None:
    """Longest targets first, so that running out of memory happens at once or never."""
    lengths = torch.randint(3, 30, (50, 2), generator=torch.Generator().manual_seed(0))
    batches = LengthBatches(lengths, max_sentences=7)
    targets = lengths[list(chain(*batches)), 1].tolist()
    assert targets == sorted(targets, reverse=True)
    before = list(batches)
    batches.set_epoch(3)
    assert list(batches) == before
    assert [len(batch) for batch in before] == [7] * 7 + [1]


def test_little_padding() -> None:
    data = toy_data(train=2000, max_tokens=2048)
    tokens = padded = 0
    for batch in data.train_dataloader():
        tokens += int((batch.target != data.vocab.pad).sum())
        padded += batch.target.numel()
    assert tokens / padded > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set data.max_tokens or data.max_sentences"),
        ({"max_tokens": 0}, "at least 1"),
        ({"max_sentences": 0}, "at least 1"),
        ({"max_tokens": 5}, "longest sentence has 9 tokens, more than the 5 of a batch"),
    ],
)
def test_invalid_budgets_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LengthBatches(torch.tensor([[9, 3]]), **options)
