"""Exponential moving average (EMA) of the weights, which is what is validated, decoded and saved."""

from copy import deepcopy
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from rdm.errors import require


def warmed_up_decay(decay: float, updates: int) -> float:
    """Return ``min(decay, (1 + n) / (10 + n))``, so that the EMA of a short run forgets the initial weights.

    >>> warmed_up_decay(0.9999, 0)
    0.1
    """
    return min(decay, (1 + updates) / (10 + updates))


class EMA(pl.Callback):
    """Keeps ``average <- decay * average + (1 - decay) * weights`` and swaps it in for validation and checkpoints.

    Buffers (noise tables, forbidden ids) are not averaged. The average is a list of tensors like the parameters, so it
    is sharded wherever they are; Lightning's own callback does not support that.
    """

    def __init__(self, decay: float = 0.9999) -> None:
        require(0 <= decay < 1, f"callbacks.ema.decay must lie in [0, 1), got {decay}")
        self.decay = decay
        self.average: list[Tensor] | None = None
        self.updates = 0  # optimiser steps in the average
        self.swapped = False  # whether the model holds the average, and ``average`` the trained weights

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.average is None:
            self.average = clone_parameters(pl_module)
        # The model may have been moved to its device after a checkpoint was loaded.
        self.average = [average.to(pl_module.device) for average in self.average]

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.updates:
            return  # gradients are still being accumulated
        assert self.average is not None
        weights = [parameter.detach() for parameter in pl_module.parameters()]
        # The first step replaces the average: the weights before it are random.
        step = 1 - warmed_up_decay(self.decay, self.updates) if self.updates else 1.0
        torch._foreach_lerp_(self.average, weights, step)
        self.updates = trainer.global_step

    @torch.no_grad()
    def swap(self, pl_module: pl.LightningModule) -> None:
        """Exchange the weights of the model with the average."""
        assert self.average is not None
        for average, parameter in zip(self.average, pl_module.parameters(), strict=True):
            weights = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(weights)
        self.swapped = not self.swapped

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.swap(pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.swap(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.swap(pl_module)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.updates = state_dict["updates"]

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save the average as ``state_dict`` and the trained weights as ``current_model_state``."""
        states = [deepcopy(checkpoint["state_dict"])]  # the original changes with the model
        self.swap(pl_module)
        states.append(deepcopy(trainer.strategy.lightning_module_state_dict()))
        self.swap(pl_module)
        checkpoint["current_model_state"], checkpoint["state_dict"] = reversed(states) if self.swapped else states

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # Lightning has loaded ``state_dict`` into the model by now, under every strategy.
        self.average = clone_parameters(pl_module)
        if "current_model_state" not in checkpoint:
            return  # the run was trained without EMA so far
        saved = checkpoint["current_model_state"]
        # One name per parameter: a sharded parameter that is tied cannot be loaded under its other names.
        weights = {name: saved[name] for name, _ in pl_module.named_parameters()}
        set_model_state_dict(pl_module, weights, options=StateDictOptions(full_state_dict=True, strict=False))


def clone_parameters(module: pl.LightningModule) -> list[Tensor]:
    """Return copies of the parameters, with the device and sharding of each."""
    return [parameter.detach().clone() for parameter in module.parameters()]
