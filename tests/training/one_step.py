"""Run one optimiser step and save its gradients.

``python -m tests.training.one_step OUT DEVICES ACCUMULATE STRATEGY [fused]``; DDP starts a process per rank, so the
tests run this file in a subprocess.
"""

import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from rdm.training.module import TrainingModule
from rdm.training.optim import InverseSqrt, Optimization
from rdm.training.sharding import Sharded, full_tensor
from tests.builders import FixedCopies, tiny_system, toy_data


class KeepGradients(pl.Callback):
    def __init__(self, file: Path) -> None:
        self.file = file

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any) -> None:
        # Gathering sharded gradients is a collective operation: all ranks take part.
        gradients = {name: full_tensor(p.grad).clone() for name, p in pl_module.named_parameters()}
        if trainer.is_global_zero:
            torch.save(gradients, self.file)


def one_step(file: Path, devices: int = 1, accumulate: int = 1, strategy: str = "auto", fused: bool = False) -> None:
    """Run one step over the same 24 sentences, divided into ``devices * accumulate`` batches of uneven size."""
    sentences = 24
    torch.manual_seed(0)
    data = toy_data(train=sentences, max_tokens=None, max_sentences=sentences)
    system = tiny_system(data.vocab, copies=FixedCopies())
    system.denoiser.network.fused_cross_entropy = fused
    module = TrainingModule(system, Optimization(InverseSqrt(warmup_steps=1), lr=1e-3))
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=Sharded() if strategy == "sharded" else strategy,
        max_steps=1,
        accumulate_grad_batches=accumulate,
        limit_val_batches=0,
        callbacks=[KeepGradients(file)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, data)


if __name__ == "__main__":
    one_step(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], "fused" in sys.argv[5:])
