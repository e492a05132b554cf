"""What data modules take from the trainer and from the loading options."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from rdm.data.batch import Batch
from rdm.data.loading import Loading
from rdm.data.toy import ToyTranslation
from rdm.errors import UserError
from tests.builders import batch_of, toy_data
from tests.data.helpers import pairs


class FakeTrainer(Namespace):
    """The attributes of a trainer that a data module reads."""

    def __init__(self, ranks: int = 1, accumulate: int = 1, device: str = "cpu") -> None:
        strategy = Namespace(root_device=torch.device(device))
        super().__init__(
            global_rank=0, world_size=ranks, accumulate_grad_batches=accumulate, strategy=strategy, datamodule=None
        )


@pytest.mark.parametrize("size", [{"max_tokens": 1024}, {"max_tokens": None, "max_sentences": 64}])
@pytest.mark.parametrize(("ranks", "accumulate"), [(2, 1), (1, 4), (4, 2)])
def test_step_size_does_not_depend_on_the_number_of_devices(size: dict[str, int], ranks: int, accumulate: int) -> None:
    """The budget of a step is divided by devices and accumulated batches, so an epoch has as many steps."""
    steps = []
    for trainer in (FakeTrainer(), FakeTrainer(ranks, accumulate)):
        data = toy_data(train=1500, **size)
        data.trainer = trainer  # type: ignore[assignment]
        loader = data.train_dataloader()
        parts = trainer.world_size * trainer.accumulate_grad_batches
        for batch in loader:
            whole = batch.target.numel() if size["max_tokens"] else len(batch.target)
            assert whole * parts <= next(filter(None, size.values()))
        steps.append(len(loader) / trainer.accumulate_grad_batches)
    assert steps[1] == pytest.approx(steps[0], rel=0.1)


def test_a_budget_smaller_than_the_number_of_batches_is_refused() -> None:
    data = toy_data(max_tokens=None, max_sentences=3)
    data.trainer = FakeTrainer(ranks=4)  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"data\.max_sentences=3 is too little for 4 batches"):
        data.train_dataloader()


def test_memory_is_pinned_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    data = toy_data()
    for device in ("cpu", "cuda"):
        data.trainer = FakeTrainer(device=device)  # type: ignore[assignment]
        assert data.val_dataloader().pin_memory is (device == "cuda")
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor.clone())
    batch = batch_of(data, [0, 1])
    again = pin_memory(batch)  # called by the loader
    assert isinstance(again, Batch)
    assert torch.equal(again.target, batch.target)
    assert again.counts == batch.counts
    assert len(pinned) == 3 + len(batch.counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "data.num_workers must be 0 or above, got -1"),
        ({"eval_sentences": 0}, "eval_sentences must be at least 1, got 0"),
    ],
)
def test_invalid_loading_options_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Loading(**options)  # type: ignore[arg-type]


def test_more_processes_than_examples_are_refused(tmp_path: Path) -> None:
    data = pairs(tmp_path, ToyTranslation(train_size=5, valid_size=2, test_size=2))
    data.trainer = FakeTrainer(ranks=3)  # type: ignore[assignment]
    with pytest.raises(UserError, match="the valid split has fewer examples than there are processes"):
        data.val_dataloader()
