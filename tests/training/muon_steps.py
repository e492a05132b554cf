"""Train with Muon and save the weights, the EMA weights and the momenta.

``python -m tests.training.muon_steps OUT DEVICES STRATEGY``; the run is stopped after half of its steps and resumed.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.optim import SGD

from rdm.training import muon
from rdm.training.ema import EMA
from rdm.training.module import TrainingModule
from rdm.training.muon import Muon
from rdm.training.optim import InverseSqrt, Optimization
from rdm.training.parameter_groups import HiddenMatrices, ParameterGroup
from rdm.training.sharding import Sharded, full_tensor
from tests.builders import FixedCopies, tiny_system, toy_data

STEPS = 4


def train(file: Path, steps: int, ckpt: Path | None = None, devices: int = 1, strategy: str = "auto") -> None:
    """Train ``steps`` steps over 24 sentences with clipping, EMA and accumulation; ``file`` gets the result.

    The other parameters are updated by SGD: AdamW divides by gradients that are nearly 0, and would enlarge differences
    of rounding between one process and two.
    """
    muon.computes_in_bf16 = lambda: False  # float32 everywhere: processes then differ by little
    torch.manual_seed(0)
    data = toy_data(train=24, max_tokens=None, max_sentences=24)
    groups = {"hidden": ParameterGroup(HiddenMatrices(), partial(Muon, lr=1e-2))}
    optimization = Optimization(
        InverseSqrt(2), lr=1e-2, algorithm=partial(SGD, momentum=0.5, foreach=False), groups=groups
    )
    module = TrainingModule(tiny_system(data.vocab, copies=FixedCopies()), optimization)
    ema = EMA(decay=0.9)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=Sharded() if strategy == "sharded" else strategy,
        max_steps=steps,
        gradient_clip_val=0.5,
        accumulate_grad_batches=2,
        limit_val_batches=0,
        callbacks=[ema],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, data, ckpt_path=ckpt, weights_only=True)
    trainer.save_checkpoint(file.with_suffix(".ckpt"))
    names = [name for name, _ in module.named_parameters()]
    assert ema.average is not None
    # Gathering is a collective operation: all ranks take part.
    result: dict[str, Any] = {
        "ema": {name: full_tensor(each.detach()).clone() for name, each in module.named_parameters()},
        "weights": {name: full_tensor(each).clone() for name, each in zip(names, ema.average, strict=True)},
        "momenta": [
            full_tensor(trainer.optimizers[0].state[each]["momentum_buffer"]).clone()
            for each in HiddenMatrices().select(module.system)
        ],
    }
    if trainer.is_global_zero:
        torch.save(result, file)


def train_in_two_parts(file: Path, devices: int = 1, strategy: str = "auto") -> None:
    """Train half of the steps, and resume from the checkpoint for the other half."""
    half = file.with_name("half.pt")
    train(half, STEPS // 2, devices=devices, strategy=strategy)
    train(file, STEPS, ckpt=half.with_suffix(".ckpt"), devices=devices, strategy=strategy)


if __name__ == "__main__":
    train_in_two_parts(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
