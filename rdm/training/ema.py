"""Exponential moving average of the weights, which are the ones validated, decoded and saved."""

from copy import deepcopy
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from rdm.errors import require


def warmed_up_decay(decay: float, updates: int) -> float:
    """``min(decay, (1 + n) / (10 + n))``: a short run would otherwise be judged by its first, random weights."""
    return min(decay, (1 + updates) / (10 + updates))


class EMA(pl.Callback):
    """Keeps ``average <- decay * average + (1 - decay) * weights`` and swaps it in for validation and checkpoints.

    Buffers (noise tables, barred ids) are not averaged. The average is a list of tensors like the parameters: where
    these are shards of a model spread over devices, so is it, which Lightning's own callback cannot do.
    """

    def __init__(self, decay: float = 0.9999) -> None:
        require(0 <= decay < 1, f"the decay of the moving average must lie in [0, 1), got {decay}")
        self.decay = decay
        self.average: list[Tensor] | None = None
        self.updates = 0  # so many optimiser steps are in the average
        self.swapped = False  # whether the model has the average, and ``average`` the weights that are trained

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.average is None:
            self.average = copies(pl_module)
        # The model may have been moved to its device since a checkpoint was loaded.
        self.average = [average.to(pl_module.device) for average in self.average]

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.updates:
            return  # micro-batches are still being accumulated
        assert self.average is not None
        weights = [parameter.detach() for parameter in pl_module.parameters()]
        # The first step has nothing to be averaged with: what the weights were before it is chance.
        step = 1 - warmed_up_decay(self.decay, self.updates) if self.updates else 1.0
        torch._foreach_lerp_(self.average, weights, step)
        self.updates = trainer.global_step

    @torch.no_grad()
    def swap(self, pl_module: pl.LightningModule) -> None:
        """The average becomes the weights of the model, and these are kept in its place."""
        assert self.average is not None
        for average, parameter in zip(self.average, pl_module.parameters(), strict=True):
            kept = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(kept)
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
        """``state_dict`` is the average, ``current_model_state`` the weights that are trained."""
        states = [deepcopy(checkpoint["state_dict"])]  # the original changes with the model
        self.swap(pl_module)
        states.append(deepcopy(trainer.strategy.lightning_module_state_dict()))
        self.swap(pl_module)
        checkpoint["current_model_state"], checkpoint["state_dict"] = reversed(states) if self.swapped else states

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # Lightning has loaded ``state_dict`` into the model by now, whatever the strategy.
        self.average = copies(pl_module)
        if "current_model_state" not in checkpoint:
            return  # the run was trained without an average so far
        saved = checkpoint["current_model_state"]
        # Each parameter under one name: spread over devices, one that is shared cannot be loaded under the others.
        weights = {name: saved[name] for name, _ in pl_module.named_parameters()}
        set_model_state_dict(pl_module, weights, options=StateDictOptions(full_state_dict=True, strict=False))


def copies(module: pl.LightningModule) -> list[Tensor]:
    """The values of the parameters, each on the device and in the shard it is in."""
    return [parameter.detach().clone() for parameter in module.parameters()]
