"""What data modules take from the trainer: how many share a step, and whether a GPU waits for batches."""

from argparse import Namespace

import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from rdm.data.batching import Batch
from rdm.errors import UserError
from tests.builders import batch_of, toy_data


class Place(Namespace):
    """What a data module asks of a trainer."""

    def __init__(self, ranks: int = 1, accumulate: int = 1, device: str = "cpu") -> None:
        strategy = Namespace(root_device=torch.device(device))
        super().__init__(
            global_rank=0, world_size=ranks, accumulate_grad_batches=accumulate, strategy=strategy, datamodule=None
        )


@pytest.mark.parametrize("size", [{"max_tokens": 1024}, {"max_tokens": None, "max_sentences": 64}])
@pytest.mark.parametrize(("ranks", "accumulate"), [(2, 1), (1, 4), (4, 2)])
def test_a_step_is_as_large_on_any_number_of_devices(size: dict[str, int], ranks: int, accumulate: int) -> None:
    """Its tokens or sentences are shared out, so an epoch has as many steps."""
    steps = []
    for place in (Place(), Place(ranks, accumulate)):
        data = toy_data(train=1500, **size)
        data.trainer = place  # type: ignore[assignment]
        loader = data.train_dataloader()
        parts = place.world_size * place.accumulate_grad_batches
        for batch in loader:
            whole = batch.target.numel() if size["max_tokens"] else len(batch.target)
            assert whole * parts <= next(filter(None, size.values()))
        steps.append(len(loader) / place.accumulate_grad_batches)
    assert steps[1] == pytest.approx(steps[0], rel=0.1)


def test_too_many_parts() -> None:
    data = toy_data(max_tokens=None, max_sentences=3)
    data.trainer = Place(ranks=4)  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"data\.max_sentences=3 is too little for 4 batches"):
        data.train_dataloader()


def test_memory_is_pinned_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    data = toy_data()
    for device in ("cpu", "cuda"):
        data.trainer = Place(device=device)  # type: ignore[assignment]
        assert data.val_dataloader().pin_memory is (device == "cuda")
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor.clone())
    batch = batch_of(data, [0, 1])
    again = pin_memory(batch)  # what the loader calls
    assert isinstance(again, Batch)
    assert torch.equal(again.target, batch.target)
    assert again.counts == batch.counts
    assert len(pinned) == 3 + len(batch.counts)
