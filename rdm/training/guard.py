"""Guard against non-finite losses and gradients: the step is saved, and training stops or skips it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor
from torch.nn.utils import get_total_norm

from rdm.data.batch import Batch
from rdm.errors import UserError, require
from rdm.files import atomic_write
from rdm.training.lightning_internals import get_loss_scale
from rdm.training.module import TrainingModule
from rdm.training.sharding import full_tensor

MAX_LISTED_EXAMPLES = 100  # in a message; the file holds all

SavedMicroBatch = dict[str, Any]
"""A micro-batch as plain data: the fields of its :class:`Batch`, ``rank``, ``seeds`` and ``finite_loss``."""


class Guard(pl.Callback):
    """Checks loss and gradient of every optimiser step, over all ranks, before the weights change.

    The norm of the gradient before clipping is logged.

    A non-finite step is saved for ``python -m rdm.replay``, which repeats it. It ends the run unless fewer than
    ``skip`` steps have been skipped so far; a skipped step changes neither weights nor optimiser state. Under
    ``16-mixed`` an overflow of the gradient is left to the loss scaler for as long as it can lower its scale.

    Args:
        folder: where non-finite steps are saved.
        skip: how many of them may be skipped in a run.
    """

    def __init__(self, folder: str, skip: int = 0) -> None:
        require(skip >= 0, f"callbacks.guard.skip must be 0 or above, got {skip}")
        self.folder, self.skip, self.skipped = Path(folder), skip, 0
        self._micro_batches: list[SavedMicroBatch] = []
        self._losses: list[Tensor] = []

    def state_dict(self) -> dict[str, int]:
        return {"skipped": self.skipped}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skipped = state["skipped"]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        self._micro_batches.append({**vars(batch), "rank": trainer.global_rank, "seeds": pl_module.seeds(batch_idx)})

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        self._losses.append(loss.detach())

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        micro_batches, losses = self._micro_batches, torch.stack(self._losses)
        self._micro_batches, self._losses = [], []
        gradients = [parameter.grad for parameter in pl_module.parameters() if parameter.grad is not None]
        # On a CPU the norm is ten times faster than the largest entry. If only its squares overflow, clipping fails.
        norm = full_tensor(get_total_norm(gradients))
        pl_module.log("train/gradient_norm", norm, batch_size=1)
        bad = ~torch.stack([losses.isfinite().all(), norm.isfinite()])
        # Summed, so that all ranks decide alike.
        bad_loss, bad_gradient = trainer.strategy.reduce(bad.float(), reduce_op="sum").tolist()
        if not bad_loss and (not bad_gradient or can_lower_scale(trainer)):
            return
        for micro_batch, loss in zip(micro_batches, losses, strict=True):
            micro_batch["finite_loss"] = bool(loss.isfinite())
        file = self.folder / f"step_{trainer.global_step:07d}.pt"
        micro_batches = gather_over_ranks(to_cpu(micro_batches), trainer.world_size)
        weights, device = to_cpu(dict(pl_module.system.state_dict())), pl_module.device.type
        save_step(file, {"step": trainer.global_step, "parts": micro_batches, "weights": weights, "device": device})
        message = (
            f"step {trainer.global_step}: the {'loss' if bad_loss else 'gradient'} is not finite, in a batch of "
            f"examples {list_examples(micro_batches)}; python -m rdm.replay {file} repeats the step"
        )
        if self.skipped >= self.skip:
            raise UserError(f"{message}; callbacks.guard.skip={self.skip + 1} would skip up to {self.skip + 1}")
        self.skipped += 1
        optimizer.zero_grad()  # parameters without a gradient are not updated, not even by weight decay
        rank_zero_only(print)(f"warning: {message}; skipped, {self.skipped} of at most {self.skip}", file=sys.stderr)


def can_lower_scale(trainer: pl.Trainer) -> bool:
    """Return whether the loss is scaled (``16-mixed``) by more than 1."""
    scale = get_loss_scale(trainer)
    return scale is not None and scale > 1


def to_cpu(node: Any) -> Any:
    """Copy nested data with every tensor gathered and on the CPU."""
    if isinstance(node, Tensor):
        return full_tensor(node).cpu()
    if isinstance(node, dict):
        return {key: to_cpu(value) for key, value in node.items()}
    return [to_cpu(value) for value in node] if isinstance(node, list) else node


def gather_over_ranks(micro_batches: list[SavedMicroBatch], world_size: int) -> list[SavedMicroBatch]:
    """Return the micro-batches of all ranks, in the order of ranks."""
    if world_size == 1:
        return micro_batches
    gathered: list[Any] = [None] * world_size
    torch.distributed.all_gather_object(gathered, micro_batches)
    return [micro_batch for rank in gathered for micro_batch in rank]


def list_examples(micro_batches: Sequence[SavedMicroBatch]) -> str:
    """List the ids of the micro-batches with a non-finite loss; if all are finite, of the whole step."""
    bad = [each for each in micro_batches if not each["finite_loss"]] or micro_batches
    ids = [index for each in bad for index in each["ids"].tolist()]
    more = f" and {len(ids) - MAX_LISTED_EXAMPLES} more" if len(ids) > MAX_LISTED_EXAMPLES else ""
    return ", ".join(map(str, ids[:MAX_LISTED_EXAMPLES])) + more


def load_step(file: Path) -> dict[str, Any]:
    """Load a saved step without running code."""
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"{file} cannot be read ({type(error).__name__}); name a file of <run>/not_finite") from error
    fits = isinstance(saved, dict) and {"step", "parts", "weights", "device"} <= saved.keys()
    require(fits, f"{file} is not a saved step; name a file of <run>/not_finite")
    return saved


@rank_zero_only
def save_step(file: Path, content: dict[str, Any]) -> None:
    """Write a step as plain data, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as stream:
        torch.save(content, stream)
