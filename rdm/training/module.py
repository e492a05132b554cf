"""The one LightningModule: it trains any :class:`~rdm.systems.base.System`."""

import random
from hashlib import sha256
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import Precision
from pytorch_lightning.utilities import GradClipAlgorithmType
from torch import Tensor
from torch.optim import Optimizer

from rdm.data.batching import Batch
from rdm.systems.base import System, Term
from rdm.training.optim import Optimization, as_optimization
from rdm.training.parameter_groups import OptimizerFactory
from rdm.training.sharding import shard


class TrainingModule(pl.LightningModule):
    """Loss, logging and optimiser around a system.

    A system returns sums; they are divided by the counts of the *whole* optimiser step, over ranks and accumulated
    micro-batches, so that padding, accumulation and the number of devices do not change the gradient.

    Chance, too, follows from where a micro-batch stands, not from what was drawn before: there is no state of
    generators to save, and a resumed run draws what the unbroken one would.
    """

    def __init__(self, system: System, optimization: Optimization | OptimizerFactory) -> None:
        super().__init__()
        self.system = system
        self.optimization = as_optimization(optimization)

    def configure_model(self) -> None:
        if self.device_mesh is not None:
            shard(self.system, self.device_mesh["data_parallel"])

    def on_fit_start(self) -> None:
        self.seed = torch.initial_seed() % 2**32

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        counts = dict(zip(batch.counts, self._over_ranks(torch.stack(list(batch.counts.values()))), strict=True))
        seeds = self.seeds(batch_idx)
        seed_all(seeds["dropout"])
        terms = self.system.loss(batch, torch.Generator(self.device).manual_seed(seeds["noise"]))
        # Lightning divides by the number of micro-batches, and DDP takes the mean over ranks: undo both.
        parts = self.trainer.accumulate_grad_batches * self.trainer.world_size
        means = {term.name: term.total / counts[term.unit] * parts for term in terms}
        loss = combine(terms, means)
        self.log("train/loss", loss.detach(), prog_bar=True, sync_dist=True, batch_size=1)
        self.log_dict({f"train/{name}": mean.detach() for name, mean in means.items()}, sync_dist=True, batch_size=1)
        self.log("train/target_tokens", counts["tokens"].float(), batch_size=1)
        return loss

    def seeds(self, batch_idx: int) -> dict[str, int]:
        """Of the noise and of the dropout of a micro-batch."""
        micro_batch = batch_idx % self.trainer.accumulate_grad_batches
        place = (self.seed, self.global_step, micro_batch, self.global_rank)
        return {kind: chance(kind, *place) for kind in ("noise", "dropout")}

    def _over_ranks(self, count: Tensor) -> Tensor:
        return torch.as_tensor(self.all_gather(count)).sum(0) if self.trainer.world_size > 1 else count

    def on_validation_epoch_start(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor] = {}
        self._terms: list[Term] = []

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        # The same noise at every validation: what changes between two of them is the model.
        generator = torch.Generator(self.device).manual_seed(batch_idx)
        self._terms = self.system.loss(batch, generator)
        for term in self._terms:
            self._sums[term.name] = self._sums.get(term.name, 0) + term.total
            self._counts[term.name] = self._counts.get(term.name, 0) + batch.counts[term.unit]

    def on_validation_epoch_end(self) -> None:
        means = {name: self._over_ranks(self._sums[name]) / self._over_ranks(self._counts[name]) for name in self._sums}
        self.log("val/loss", combine(self._terms, means), prog_bar=True)
        self.log_dict({f"val/{name}": mean for name, mean in means.items()})

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # By the method of every precision: that of mixed precision refuses a fused optimiser even if there is no scale.
        algorithm = GradClipAlgorithmType(gradient_clip_algorithm or "norm")
        Precision.clip_gradients(self.trainer.precision_plugin, optimizer, gradient_clip_val or 0.0, algorithm)

    def configure_optimizers(self) -> Any:
        # A fused optimiser undoes the scale of gradients itself: too late for clipping, and not in a step left out.
        fused = self.trainer.precision != "16-mixed"
        optimizer, schedule = self.optimization.build(self.system, self.trainer.estimated_stepping_batches, fused)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def chance(kind: str, seed: int, step: int, micro_batch: int, rank: int) -> int:
    """A seed that follows from where a micro-batch stands: other on every rank, the same after a resume."""
    return int(sha256(repr((kind, seed, step, micro_batch, rank)).encode()).hexdigest()[:15], 16)


def seed_all(seed: int) -> None:
    """Set every generator that is nobody's own: those of Python, NumPy and torch, on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def combine(terms: list[Term], means: dict[str, Tensor]) -> Tensor:
    """The weighted sum of the parts of a loss."""
    return torch.stack([term.factor * means[term.name] for term in terms]).sum()
