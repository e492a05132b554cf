"""Train with a step that is not finite: ``python -m tests.training.guarded FOLDER`` does it in two processes.

Run as a process of its own, because DDP forks one for every rank.
"""

import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from rdm.data.batching import Batch
from rdm.training.guard import Guard
from rdm.training.module import TrainingModule
from rdm.training.optim import InverseSqrt, Optimization
from tests.builders import tiny_system, toy_data


class Spoil(torch.autograd.Function):
    """Multiplies a value on the way forward, and its gradient on the way back."""

    @staticmethod
    def forward(context: Any, x: Tensor, forward: float, backward: float) -> Tensor:  # type: ignore[override]
        context.factor = backward
        return x * forward

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return gradient * context.factor, None, None


class Poisoned(TrainingModule):
    """Training in which the loss, or only its gradient, is not finite in one micro-batch of one rank."""

    def __init__(self, at: int, rank: int = 0, loss: float = float("nan"), gradient: float = float("nan")) -> None:
        torch.manual_seed(0)
        self.data = toy_data(max_tokens=None, max_sentences=4)
        super().__init__(tiny_system(self.data.vocab), Optimization(InverseSqrt(warmup_steps=1), lr=1e-2))
        self.at, self.rank, self.factors = at, rank, (loss, gradient)
        self.ids: dict[int, list[int]] = {}  # the examples of every micro-batch

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


class Keep(pl.Callback):
    """Saves what each rank ended with."""

    def __init__(self, folder: Path, guard: Guard) -> None:
        self.folder, self.guard = folder, guard

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        end = [self.guard.skipped, pl_module.ids[2], pl_module.system.state_dict()]
        torch.save(end, self.folder / f"rank{trainer.global_rank}.pt")


def main(folder: Path) -> None:
    """Two ranks, of which the second is spoiled in its third micro-batch: that is in the second of four steps."""
    guard = Guard(str(folder / "not_finite"), skip=1)
    Poisoned(at=2, rank=1).fit(guard, Keep(folder, guard), devices=2, strategy="ddp_fork", accumulate_grad_batches=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
