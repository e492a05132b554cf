"""Batches, as systems receive them."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Batch:
    """``B`` examples, padded.

    The source is given: neither noised nor learned. For tasks with a source it is a sentence; for open-ended text it is
    a prefix of the target (``target[:, :S] == source``, with ``S = 0`` for no prefix).

    ``counts`` holds the denominators of losses as scalar tensors, keyed by unit. Training batches carry the totals of
    their whole optimiser step on this rank (see :class:`~rdm.data.step_loader.StepLoader`); other batches carry none.
    """

    source: Tensor  # [B, S] <bos> text <eos>, or a prefix of the target
    target: Tensor  # [B, N] <bos> text <eos>, or N tokens of packed text
    ids: Tensor  # [B] index of each example in its split
    counts: dict[str, Tensor] = field(default_factory=dict)

    def pin_memory(self) -> "Batch":
        """Copy to pinned memory; called by ``DataLoader(pin_memory=True)``."""
        counts = {name: count.pin_memory() for name, count in self.counts.items()}
        return Batch(self.source.pin_memory(), self.target.pin_memory(), self.ids.pin_memory(), counts)
