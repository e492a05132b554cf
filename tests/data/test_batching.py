"""Batches hold what they should, in an order that follows from seed and epoch, shared out over ranks without loss."""

from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.data.batching import Batch, LengthBatches, Pairs, StepLoader, with_step_counts
from rdm.data.module import Loading
from rdm.data.prepared import Ragged
from rdm.data.toy import ToyText, ToyTranslation
from rdm.errors import UserError
from rdm.vocab import Vocab
from tests.builders import batch_of, toy_data
from tests.data.helpers import open_ended, pairs

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


@given(sizes=sizes, max_tokens=st.integers(30, 200), max_sentences=st.integers(1, 9))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_both_budgets_hold(sizes: list[tuple[int, int]], max_tokens: int, max_sentences: int) -> None:
    """And no batch could take the next sentence of its length group: only the last of an order may be small."""
    lengths = torch.tensor(sizes)
    batches = LengthBatches(lengths, max_tokens, max_sentences)
    assert sorted(chain(*batches)) == list(range(len(sizes)))
    for batch, after in zip(batches.batches, [*batches.batches[1:], None], strict=True):
        assert len(batch) <= max_sentences
        assert len(batch) * int(lengths[batch].max()) <= max_tokens
        if after is not None:
            grown = [*batch, after[0]]
            assert len(grown) > max_sentences or len(grown) * int(lengths[grown].max()) > max_tokens


def test_number_of_batches_is_the_same_in_every_epoch() -> None:
    """A resumed run is told how far it was before it is told the epoch."""
    lengths = torch.randint(3, 30, (300, 2), generator=torch.Generator().manual_seed(0))
    batches = LengthBatches(lengths, 90, shuffle=True)
    counts = set()
    for epoch in range(8):
        batches.set_epoch(epoch)
        counts.add(len(batches))
    assert len(counts) == 1


def test_evaluation_goes_from_long_to_short() -> None:
    """By target, in one fixed order, so that memory runs out at once or never."""
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


@pytest.mark.parametrize("given_rows", [[0, 1, 2], [2, 0], [1]])
def test_pairs_by_hand(given_rows: list[int]) -> None:
    """Framed and padded on each side for itself, from rows of the split alone."""
    vocab = Vocab(size=20)
    sources, targets = [[5], [6, 7, 8], [], [9, 10]], [[11, 12], [13], [14], [15, 4, 16]]
    examples = Pairs(vocab, Ragged.of(sources), Ragged.of(targets), np.array([3, 0, 1]))
    assert len(examples) == 3
    assert examples.lengths().tolist() == [[4, 5], [3, 4], [5, 3]]
    assert examples.target_ids().tolist() == [11, 12, 13, 15, 4, 16]
    batch = examples[given_rows]
    for side, rows in ((batch.source, sources), (batch.target, targets)):
        kept = [rows[[3, 0, 1][index]] for index in given_rows]
        longest = max(map(len, kept))
        assert side.tolist() == [[2, *row, 3] + [0] * (longest - len(row)) for row in kept]
    assert batch.ids.tolist() == given_rows


def test_padding_to_a_multiple() -> None:
    """Widths are multiples, never more than the model takes, and budgets count them."""
    vocab, rows = Vocab(size=20), [[5] * length for length in (1, 5, 7, 9)]
    examples = Pairs(vocab, Ragged.of(rows), Ragged.of(rows), np.arange(4), multiple=8, widest=11)
    assert examples.lengths().tolist() == [[8, 8], [8, 8], [11, 11], [11, 11]]
    for indices, width in (([0], 8), ([0, 1], 8), ([1, 2], 11), ([3], 11)):
        batch = examples[indices]
        assert batch.source.shape == batch.target.shape == (len(indices), width)
        assert int(batch.counts["tokens"]) == sum(len(rows[index]) + 2 for index in indices)
    assert all(batch.target.shape[1] % 8 == 0 for batch in toy_data(pad_to_multiple=8).train_dataloader())


# Loaders.


def contents(batches: list[Batch]) -> list[tuple[list[int], list[list[int]], list[list[int]], dict[str, int]]]:
    """Batches as plain numbers, to be compared."""
    return [
        (
            batch.ids.tolist(),
            batch.source.tolist(),
            batch.target.tolist(),
            {name: int(count) for name, count in batch.counts.items()},
        )
        for batch in batches
    ]


def translation_loader(cache: Path, workers: int, seed: int = 3, **size: int | None) -> StepLoader:
    options = size or {"max_tokens": 200}
    corpus = ToyTranslation(train_size=60, valid_size=8, test_size=8)
    return pairs(cache, corpus, num_workers=workers, seed=seed, **options).train_dataloader()


def text_loader(cache: Path, workers: int, seed: int = 3) -> StepLoader:
    data = open_ended(cache, ToyText(20, 4, 4), 16, prompt=4, num_workers=workers, seed=seed, max_sentences=6)
    return data.train_dataloader()


def epoch_of(loader: StepLoader, epoch: int) -> list[Batch]:
    loader.sampler.set_epoch(epoch)
    return list(loader)


@pytest.mark.parametrize("kind", ["tokens", "sentences", "windows"])
def test_batches_follow_from_seed_and_epoch_alone(tmp_path: Path, kind: str) -> None:
    """Not from the number of workers, nor from epochs before."""

    def loader(workers: int, seed: int = 3) -> StepLoader:
        if kind == "windows":
            return text_loader(tmp_path, workers, seed)
        size = {"max_tokens": 200} if kind == "tokens" else {"max_tokens": None, "max_sentences": 7}
        return translation_loader(tmp_path, workers, seed, **size)

    alone = loader(0)
    first, second = contents(epoch_of(alone, 0)), contents(epoch_of(alone, 1))
    assert len(first) > 3
    assert first != second
    assert contents(epoch_of(loader(2), 1)) == second
    assert contents(epoch_of(loader(0), 1)) == second
    assert contents(epoch_of(loader(0, seed=4), 1)) != second


def test_evaluation_order(tmp_path: Path) -> None:
    """The same with any number of workers and at every call; longest first."""
    corpus = ToyTranslation(train_size=60, valid_size=30, test_size=8)
    orders = []
    for workers in (0, 2):
        loader = pairs(tmp_path, corpus, num_workers=workers, eval_sentences=8).val_dataloader()
        orders += [contents(list(loader)) for _ in range(2 - workers // 2)]
    assert orders[0] == orders[1] == orders[2]
    assert sorted(chain(*(ids for ids, *_ in orders[0]))) == list(range(30))
    widths = [len(targets[0]) for _, _, targets, _ in orders[0]]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loader_goes_on_where_it_was(tmp_path: Path, workers: int, accumulate: int) -> None:
    """In the middle of an epoch with the very next batch, and with the whole of the epoch after that."""

    def fresh() -> StepLoader:
        return StepLoader(translation_loader(tmp_path, workers).loader, accumulate)

    whole = fresh()
    expected = [contents(epoch_of(whole, epoch)) for epoch in (1, 2)]
    stopped = fresh()
    stopped.sampler.set_epoch(1)
    begun = iter(stopped)
    assert contents(list(islice(begun, 4))) == expected[0][:4]
    state = stopped.state_dict()
    resumed = fresh()
    resumed.load_state_dict(state)
    assert contents(epoch_of(resumed, 1)) == expected[0][4:]
    assert resumed.state_dict() == whole.state_dict()
    assert contents(epoch_of(resumed, 2)) == expected[1]


def test_between_steps(tmp_path: Path) -> None:
    """Told before every step, never within one; what is saved then is where the next step begins."""
    loader, seen = StepLoader(translation_loader(tmp_path, 0).loader, 3), []
    loader.between_steps = lambda: seen.append(loader.state_dict()["handed_out"])
    batches = len(epoch_of(loader, 0))
    assert batches > 3
    assert seen == list(range(0, batches, 3))


def test_a_finished_epoch_is_not_resumed(tmp_path: Path) -> None:
    """Its state is that of the beginning of the next one."""
    loader = translation_loader(tmp_path, 0)
    list(loader)
    resumed = translation_loader(tmp_path, 0)
    resumed.load_state_dict(loader.state_dict())
    assert contents(epoch_of(resumed, 1)) == contents(epoch_of(loader, 1))


def test_counts_of_a_step_that_is_not_full(tmp_path: Path) -> None:
    """The last batches of an epoch make a step of their own."""
    single = translation_loader(tmp_path, 0, max_tokens=None, max_sentences=8)
    sizes = [int(batch.counts["sentences"]) for batch in single]
    assert len(sizes) == 8
    steps = [int(batch.counts["sentences"]) for batch in StepLoader(single.loader, 3)]
    totals = [sum(sizes[start : start + 3]) for start in (0, 3, 6)]
    assert steps == [totals[0]] * 3 + [totals[1]] * 3 + [totals[2]] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "data.num_workers must be 0 or above, got -1"),
        ({"eval_sentences": 0}, "eval_sentences must be at least 1, got 0"),
    ],
)
def test_bad_loading(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Loading(**options)  # type: ignore[arg-type]


def test_more_processes_than_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pairs(tmp_path, ToyTranslation(train_size=5, valid_size=2, test_size=2))
    monkeypatch.setattr(data, "_place", lambda: (0, 3))
    with pytest.raises(UserError, match="the valid split has fewer examples than there are processes"):
        data.val_dataloader()
