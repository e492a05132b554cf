"""Training with a non-finite step; ``python -m tests.training.guarded FOLDER`` runs it on two ranks.

DDP forks a process per rank, so the tests run this file in a subprocess.
"""

import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.training.guard import Guard
from rdm.training.module import TrainingModule
from rdm.training.optim import InverseSqrt, Optimization
from tests.builders import tiny_system, toy_data


class Spoil(torch.autograd.Function):
    """Multiplies a value in the forward pass and its gradient in the backward pass."""

    @staticmethod
    def forward(context: Any, x: Tensor, forward: float, backward: float) -> Tensor:  # type: ignore[override]
        context.factor = backward
        return x * forward

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return gradient * context.factor, None, None


class Poisoned(TrainingModule):
    """Training module whose loss, or only its gradient, is not finite in one micro-batch of one rank."""

    def __init__(self, at: int, rank: int = 0, loss: float = float("nan"), gradient: float = float("nan")) -> None:
        torch.manual_seed(0)
        self.data = toy_data(max_tokens=None, max_sentences=4)
        super().__init__(tiny_system(self.data.vocab), Optimization(InverseSqrt(warmup_steps=1), lr=1e-2))
        self.at, self.rank, self.factors = at, rank, (loss, gradient)
        self.ids: dict[int, list[int]] = {}  # examples by micro-batch

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.ids[batch_idx] = batch.ids.tolist()
        loss = super().training_step(batch, batch_idx)
        spoiled = batch_idx == self.at and self.global_rank == self.rank
        return Spoil.apply(loss, *self.factors) if spoiled else loss

    def fit(self, *callbacks: pl.Callback, steps: int = 4, **options: Any) -> pl.Trainer:
        trainer = pl.Trainer(
            **{"accelerator": "cpu", **options},
            max_steps=steps,
            limit_val_batches=0,
            gradient_clip_val=1.0,
            callbacks=list(callbacks),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        trainer.fit(self, self.data)
        return trainer


class SaveResult(pl.Callback):
    """Saves the final state of each rank."""

    def __init__(self, folder: Path, guard: Guard) -> None:
        self.folder, self.guard = folder, guard

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        end = [self.guard.skipped, pl_module.ids[2], pl_module.system.state_dict()]
        torch.save(end, self.folder / f"rank{trainer.global_rank}.pt")


def main(folder: Path) -> None:
    """Train on two ranks; the second has a non-finite loss in its third micro-batch, in the second of four steps."""
    guard = Guard(str(folder / "not_finite"), skip=1)
    Poisoned(at=2, rank=1).fit(
        guard, SaveResult(folder, guard), devices=2, strategy="ddp_fork", accumulate_grad_batches=2
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
