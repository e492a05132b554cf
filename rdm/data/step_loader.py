"""The training loader: batches with the loss denominators of their whole optimiser step."""

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rdm.data.batch import Batch
from rdm.data.length_batches import LengthBatches

Count = Callable[[Batch], dict[str, Tensor]]
"""The denominators of a batch's losses: scalar tensors, keyed by unit."""


class StepLoader:
    """Attach the counts of the whole optimiser step (on this rank) to every training batch.

    A loss divided by the tokens of its own micro-batch depends on how the step was split. To divide by those of the
    whole step, the loader reads all ``accumulate`` batches of a step before it yields the first.

    Args:
        loader: yields batches; its sampler is a :class:`LengthBatches`.
        accumulate: micro-batches per optimiser step.
        count: the counts of one batch.
    """

    def __init__(self, loader: DataLoader[Batch], accumulate: int, count: Count) -> None:
        self.loader, self.accumulate, self.count = loader, accumulate, count
        # Batches of this epoch yielded so far: saved in checkpoints, so that a resumed run starts at the next one.
        self.handed_out = self.resumed_at = 0
        # Called when the next step is requested, i.e. after all work of the previous one.
        self.between_steps: Callable[[], None] = lambda: None

    def state_dict(self) -> dict[str, int]:
        return {"handed_out": self.handed_out}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.resumed_at = state["handed_out"] % len(self)

    @property
    def sampler(self) -> LengthBatches:
        """The sampler of the wrapped loader; Lightning calls its ``set_epoch``."""
        return self.loader.sampler  # type: ignore[return-value]

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        self.sampler.start, self.handed_out, self.resumed_at = self.resumed_at, self.resumed_at, 0
        batches = iter(self.loader)
        while step := list(islice(batches, self.accumulate)):
            self.between_steps()
            totals = sum_counts([self.count(batch) for batch in step])
            for batch in step:
                batch.counts = totals
                self.handed_out += 1
                yield batch


def sum_counts(counts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Add up the counts of the micro-batches of one optimiser step."""
    return {name: sum((each[name] for each in counts), torch.tensor(0)) for name in counts[0]}
