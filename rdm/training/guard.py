"""A loss or gradient that is not finite: the step is saved, and training stops or goes on without it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor
from torch.nn.utils import get_total_norm

from rdm.data.batching import Batch
from rdm.errors import UserError, require
from rdm.files import atomic_write
from rdm.training.module import TrainingModule
from rdm.training.sharding import whole

SHOWN = 100  # example ids in a message; the file holds all

Part = dict[str, Any]
"""A micro-batch as plain data: the batch, and all else that decides its loss but the weights."""


class Guard(pl.Callback):
    """Looks at the loss and the gradient of every optimiser step, over all ranks, before the weights change.

    A step that is not finite is saved for ``python -m rdm.replay``, which repeats it. It ends the run, unless fewer
    than ``skip`` such steps have been left out so far. What is left out changes neither weights nor moments. Where
    float16 losses are scaled, a gradient that overflows is left to the scaler for as long as it can lower its scale.

    Args:
        folder: where such steps are saved.
        skip: how many may be left out in a run.
    """

    def __init__(self, folder: str, skip: int = 0) -> None:
        require(skip >= 0, f"callbacks.guard.skip must be 0 or above, got {skip}")
        self.folder, self.skip, self.skipped = Path(folder), skip, 0
        self._parts: list[Part] = []
        self._losses: list[Tensor] = []

    def state_dict(self) -> dict[str, int]:
        return {"skipped": self.skipped}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skipped = state["skipped"]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        self._parts.append({**vars(batch), "rank": trainer.global_rank, "seeds": pl_module.seeds(batch_idx)})

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        self._losses.append(loss.detach())

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        parts, losses = self._parts, torch.stack(self._losses)
        self._parts, self._losses = [], []
        gradients = [parameter.grad for parameter in pl_module.parameters() if parameter.grad is not None]
        # Finding the largest entry takes a CPU ten times as long. What only overflows when squared cannot be clipped.
        norm = whole(get_total_norm(gradients))
        wrong = ~torch.stack([losses.isfinite().all(), norm.isfinite()])
        # The sum makes all ranks decide alike.
        wrong_loss, wrong_gradient = trainer.strategy.reduce(wrong.float(), reduce_op="sum").tolist()
        if not wrong_loss and (not wrong_gradient or scale_can_fall(trainer)):
            return
        for part, loss in zip(parts, losses, strict=True):
            part["finite_loss"] = bool(loss.isfinite())
        file = self.folder / f"step_{trainer.global_step:07d}.pt"
        parts = over_ranks(to_cpu(parts), trainer.world_size)
        weights, device = to_cpu(dict(pl_module.system.state_dict())), pl_module.device.type
        save(file, {"step": trainer.global_step, "parts": parts, "weights": weights, "device": device})
        told = f"step {trainer.global_step}: the {'loss' if wrong_loss else 'gradient'} is not finite, in a batch of "
        told += f"examples {culprits(parts)}; python -m rdm.replay {file} repeats the step"
        if self.skipped >= self.skip:
            raise UserError(f"{told}; callbacks.guard.skip={self.skip + 1} would leave out up to {self.skip + 1}")
        self.skipped += 1
        optimizer.zero_grad()  # what has no gradient is not updated, by no weight decay either
        rank_zero_only(print)(f"warning: {told}; left out, {self.skipped} of at most {self.skip}", file=sys.stderr)


def scale_can_fall(trainer: pl.Trainer) -> bool:
    """Whether losses are scaled (float16), by more than 1."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return scaler is not None and scaler.get_scale() > 1


def to_cpu(node: Any) -> Any:
    """The same with every tensor on the CPU, whole."""
    if isinstance(node, Tensor):
        return whole(node).cpu()
    if isinstance(node, dict):
        return {key: to_cpu(value) for key, value in node.items()}
    return [to_cpu(value) for value in node] if isinstance(node, list) else node


def over_ranks(parts: list[Part], ranks: int) -> list[Part]:
    """Those of all ranks."""
    if ranks == 1:
        return parts
    gathered: list[Any] = [None] * ranks
    torch.distributed.all_gather_object(gathered, parts)
    return [part for of_rank in gathered for part in of_rank]


def culprits(parts: Sequence[Part]) -> str:
    """The examples of the micro-batches whose loss is not finite; if all are finite, of the whole step."""
    wrong = [part for part in parts if not part["finite_loss"]] or parts
    ids = [index for part in wrong for index in part["ids"].tolist()]
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(map(str, ids[:SHOWN])) + more


def load(file: Path) -> dict[str, Any]:
    """A step that was saved; nothing in the file is executed."""
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"{file} cannot be read ({type(error).__name__}); name a file of <run>/not_finite") from error
    fits = isinstance(saved, dict) and {"step", "parts", "weights", "device"} <= saved.keys()
    require(fits, f"{file} is not a saved step; name a file of <run>/not_finite")
    return saved


@rank_zero_only
def save(file: Path, content: dict[str, Any]) -> None:
    """Write plain data, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as stream:
        torch.save(content, stream)
