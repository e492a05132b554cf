"""The training loader: counts of optimiser steps, reproducible batches, resuming in an epoch."""

from itertools import chain, islice
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.data.step_loader import StepLoader, sum_counts
from rdm.data.toy import ToyText, ToyTranslation
from tests.builders import batch_of, tiny_system, toy_data
from tests.data.helpers import open_ended, pairs

Content = tuple[list[int], list[list[int]], list[list[int]], dict[str, int]]


def as_lists(batches: list[Batch]) -> list[Content]:
    """Return batches as plain numbers, for comparison."""
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


def accumulating(loader: StepLoader, accumulate: int) -> StepLoader:
    return StepLoader(loader.loader, accumulate, loader.count)


def epoch_of(loader: StepLoader, epoch: int) -> list[Batch]:
    loader.sampler.set_epoch(epoch)
    return list(loader)


# Counts.


def test_step_counts_are_those_of_one_large_batch() -> None:
    data = toy_data(train=20)
    parts, whole = [batch_of(data, [0, 1, 2]), batch_of(data, [3, 4])], batch_of(data, [0, 1, 2, 3, 4])
    totals = sum_counts([batch.counts for batch in parts])
    assert {name: int(total) for name, total in totals.items()} == {
        name: int(count) for name, count in whole.counts.items()
    }


def test_every_micro_batch_carries_the_totals_of_its_step(tmp_path: Path) -> None:
    """The last batches of an epoch make a smaller step."""
    single = translation_loader(tmp_path, 0, max_tokens=None, max_sentences=8)
    sizes = [int(batch.counts["sentences"]) for batch in single]
    assert len(sizes) == 8
    steps = [int(batch.counts["sentences"]) for batch in accumulating(single, 3)]
    totals = [sum(sizes[start : start + 3]) for start in (0, 3, 6)]
    assert steps == [totals[0]] * 3 + [totals[1]] * 3 + [totals[2]] * 2


def test_default_counts_are_sentences_and_tokens(tmp_path: Path) -> None:
    for loader in (translation_loader(tmp_path, 0), text_loader(tmp_path, 0)):
        for batch in loader:
            tokens = int((batch.target != 0).sum())
            counts = {name: int(count) for name, count in batch.counts.items()}
            assert counts == {"sentences": len(batch.ids), "tokens": tokens}


def test_counts_are_those_the_data_module_was_handed(tmp_path: Path) -> None:
    """Called once for every batch, before the first batch of its step is yielded."""
    calls: list[list[int]] = []

    def count(batch: Batch) -> dict[str, Tensor]:
        calls.append(batch.ids.tolist())
        return {"longest": torch.tensor(batch.target.shape[1])}

    data = pairs(tmp_path, ToyTranslation(train_size=60, valid_size=8, test_size=8), max_tokens=200)
    data.count = count
    loader = accumulating(data.train_dataloader(), 2)
    batches = iter(loader)
    first, second = next(batches), next(batches)
    assert calls == [first.ids.tolist(), second.ids.tolist()]
    assert {name: int(total) for name, total in first.counts.items()} == {
        "longest": first.target.shape[1] + second.target.shape[1]
    }
    assert first.counts is second.counts


def test_counts_of_a_system(tmp_path: Path) -> None:
    data = toy_data(train=20)
    data.count = tiny_system(data.vocab).counts
    for batch in data.train_dataloader():
        expected = batch_of(data, batch.ids.tolist()).counts
        assert {name: int(count) for name, count in batch.counts.items()}.items() >= {
            name: int(expected[name]) for name in ("sentences", "tokens")
        }.items()
    assert all(batch.counts == {} for batch in data.val_dataloader())


# Order.


@pytest.mark.parametrize("kind", ["tokens", "sentences", "windows"])
def test_batches_depend_on_seed_and_epoch_alone(tmp_path: Path, kind: str) -> None:
    """Not on the number of workers, nor on earlier epochs."""

    def loader(workers: int, seed: int = 3) -> StepLoader:
        if kind == "windows":
            return text_loader(tmp_path, workers, seed)
        size = {"max_tokens": 200} if kind == "tokens" else {"max_tokens": None, "max_sentences": 7}
        return translation_loader(tmp_path, workers, seed, **size)

    alone = loader(0)
    first, second = as_lists(epoch_of(alone, 0)), as_lists(epoch_of(alone, 1))
    assert len(first) > 3
    assert first != second
    assert as_lists(epoch_of(loader(2), 1)) == second
    assert as_lists(epoch_of(loader(0), 1)) == second
    assert as_lists(epoch_of(loader(0, seed=4), 1)) != second


def test_evaluation_batches_are_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    """Also at every call; longest first."""
    corpus = ToyTranslation(train_size=60, valid_size=30, test_size=8)
    orders = []
    for workers in (0, 2):
        loader = pairs(tmp_path, corpus, num_workers=workers, eval_sentences=8).val_dataloader()
        orders += [as_lists(list(loader)) for _ in range(2 - workers // 2)]
    assert orders[0] == orders[1] == orders[2]
    assert sorted(chain(*(ids for ids, *_ in orders[0]))) == list(range(30))
    widths = [len(targets[0]) for _, _, targets, _ in orders[0]]
    assert widths == sorted(widths, reverse=True)


# Resuming.


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_resumed_loader_continues_with_the_next_batch(tmp_path: Path, workers: int, accumulate: int) -> None:
    """Within the epoch; the epoch after it is complete."""

    def fresh() -> StepLoader:
        return accumulating(translation_loader(tmp_path, workers), accumulate)

    whole = fresh()
    expected = [as_lists(epoch_of(whole, epoch)) for epoch in (1, 2)]
    stopped = fresh()
    stopped.sampler.set_epoch(1)
    begun = iter(stopped)
    assert as_lists(list(islice(begun, 4))) == expected[0][:4]
    state = stopped.state_dict()
    resumed = fresh()
    resumed.load_state_dict(state)
    assert as_lists(epoch_of(resumed, 1)) == expected[0][4:]
    assert resumed.state_dict() == whole.state_dict()
    assert as_lists(epoch_of(resumed, 2)) == expected[1]


def test_between_steps_is_called_before_every_step(tmp_path: Path) -> None:
    """Never within a step; the state saved then is the beginning of the next step."""
    loader, seen = accumulating(translation_loader(tmp_path, 0), 3), []
    loader.between_steps = lambda: seen.append(loader.state_dict()["handed_out"])
    batches = len(epoch_of(loader, 0))
    assert batches > 3
    assert seen == list(range(0, batches, 3))


def test_state_at_the_end_of_an_epoch_is_the_beginning_of_the_next(tmp_path: Path) -> None:
    loader = translation_loader(tmp_path, 0)
    list(loader)
    resumed = translation_loader(tmp_path, 0)
    resumed.load_state_dict(loader.state_dict())
    assert as_lists(epoch_of(resumed, 1)) == as_lists(epoch_of(loader, 1))
