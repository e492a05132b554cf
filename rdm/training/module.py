"""The LightningModule that trains every :class:`~rdm.systems.base.System`."""

import random
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rdm.data.batch import Batch
from rdm.hashing import derive_seed
from rdm.systems.base import Likelihood, System
from rdm.terms import Term, mean_terms
from rdm.training.continuation import apply_options, get_options
from rdm.training.lightning_internals import clip_gradients
from rdm.training.optim import Optimization, as_optimization
from rdm.training.parameter_groups import OptimizerFactory
from rdm.training.sharding import shard


class TrainingModule(pl.LightningModule):
    """Loss, logging and optimiser around a system.

    A system returns sums. They are divided by the counts of the *whole* optimiser step, over ranks and accumulated
    micro-batches, so that padding, accumulation and the number of devices do not change the gradient.

    Random draws are seeded by the position of a micro-batch in the run (seed, step, micro-batch, rank). So there is no
    random state to save, and a resumed run draws the same numbers as an uninterrupted one.

    Args:
        system: what is trained.
        optimization: optimiser and learning-rate schedule, or a bare partial of a ``torch.optim`` class.
    """

    def __init__(self, system: System, optimization: Optimization | OptimizerFactory) -> None:
        super().__init__()
        self.system = system
        self.optimization = as_optimization(optimization)
        self._reported_kind: str | None = None  # of the likelihood; not known before the first validation

    def setup(self, stage: str) -> None:
        data = getattr(self.trainer, "datamodule", None)
        if data is not None:
            data.count = self.system.counts  # training batches carry the denominators that the system's terms name

    def configure_model(self) -> None:
        if self.device_mesh is not None:
            shard(self.system, self.device_mesh["data_parallel"])

    def on_fit_start(self) -> None:
        self.seed = torch.initial_seed() % 2**32

    def on_train_start(self) -> None:
        # Lightning has loaded optimiser and schedule of the checkpoint, if there is one, with their old options.
        optimizer, schedule = self.optimizers(use_pl_optimizer=False), self.lr_schedulers()
        assert isinstance(optimizer, Optimizer)
        assert isinstance(schedule, LRScheduler)
        apply_options(self._options, optimizer, schedule)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        # Validate after the last step, also between two intervals: Lightning does so when training is asked to stop.
        trainer = self.trainer
        last_epoch = trainer.max_epochs is not None and trainer.current_epoch + 1 == trainer.max_epochs
        if trainer.global_step == trainer.max_steps or (last_epoch and trainer.is_last_batch):
            trainer.should_stop = True

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        totals = self._sum_over_ranks(torch.stack(list(batch.counts.values())))
        counts = dict(zip(batch.counts, totals, strict=True))
        seeds = self.seeds(batch_idx)
        seed_all(seeds["dropout"])
        terms = self.system.loss(batch, torch.Generator(self.device).manual_seed(seeds["noise"]))
        # Lightning divides by the number of micro-batches, and DDP averages over ranks: undo both.
        micro_batches = self.trainer.accumulate_grad_batches * self.trainer.world_size
        means = {name: mean * micro_batches for name, mean in mean_terms(terms, counts).items()}
        loss = combine(terms, means)
        self.log("train/loss", loss.detach(), prog_bar=True, sync_dist=True, batch_size=1)
        self.log_dict({f"train/{name}": mean.detach() for name, mean in means.items()}, sync_dist=True, batch_size=1)
        self.log("train/target_tokens", counts["tokens"].float(), batch_size=1)
        self.log("train/lr", self.trainer.optimizers[0].param_groups[0]["lr"], batch_size=1)
        return loss

    def seeds(self, batch_idx: int) -> dict[str, int]:
        """Return the seeds for the noise and dropout of a micro-batch."""
        micro_batch = batch_idx % self.trainer.accumulate_grad_batches
        position = (self.seed, self.global_step, micro_batch, self.global_rank)
        return {kind: derive_seed(kind, *position) for kind in ("noise", "dropout")}

    def _sum_over_ranks(self, value: Tensor) -> Tensor:
        return torch.as_tensor(self.all_gather(value)).sum(0) if self.trainer.world_size > 1 else value

    def on_validation_epoch_start(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor] = {}
        self._terms: list[Term] = []
        self._likelihood: Likelihood | None = None  # of the last batch
        self._nats, self._tokens = torch.zeros(2, dtype=torch.float64, device=self.device)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        # The same noise at every validation, so that two validations differ by the model only.
        generator = torch.Generator(self.device).manual_seed(batch_idx)
        self._terms, counts = self.system.loss(batch, generator), self.system.counts(batch)
        for term in self._terms:
            self._sums[term.name] = self._sums.get(term.name, 0) + term.total
            self._counts[term.name] = self._counts.get(term.name, 0) + counts[term.unit]
        # Weights, label smoothing and noised copies change the loss, but not the likelihood.
        likelihood = self.system.likelihood(batch, 1, torch.Generator(self.device).manual_seed(batch_idx))
        if likelihood is not None:
            self._likelihood = likelihood
            self._nats = self._nats + likelihood.nats.sum()
            self._tokens = self._tokens + likelihood.tokens.sum()

    def on_validation_epoch_end(self) -> None:
        means = {
            name: self._sum_over_ranks(total) / self._sum_over_ranks(self._counts[name])
            for name, total in self._sums.items()
        }
        self.log("val/loss", combine(self._terms, means), prog_bar=True)
        self.log_dict({f"val/{name}": mean for name, mean in means.items()})
        if self._likelihood is not None:
            self._log_likelihood(self._likelihood.kind)

    def _log_likelihood(self, kind: str) -> None:
        """Log nats per target token, and the perplexity of a language model."""
        nats_per_token = (self._sum_over_ranks(self._nats) / self._sum_over_ranks(self._tokens)).float()
        metrics = {"val/nats_per_token": nats_per_token}
        if self.system.open_ended:
            metrics["val/perplexity"] = nats_per_token.exp()
        self.log_dict(metrics)
        if kind != self._reported_kind:
            self._reported_kind = kind
            self._report_likelihood_kind(" and ".join(metrics), kind)

    @rank_zero_only
    def _report_likelihood_kind(self, names: str, kind: str) -> None:
        draws = "" if kind == "exact" else ", estimated with one draw per sentence"
        print(f"{names}: {kind}{draws}")
        for logger in self.loggers:
            logger.log_hyperparams({**self.hparams, "likelihood": kind})

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        clip_gradients(self.trainer, optimizer, gradient_clip_val or 0.0, gradient_clip_algorithm or "norm")

    def configure_optimizers(self) -> Any:
        # Fused optimisers unscale gradients in their step: after clipping, and never in a step that is skipped.
        fused = self.trainer.precision != "16-mixed"
        optimizer, schedule = self.optimization.build(self.system, self.trainer.estimated_stepping_batches, fused)
        self._options = get_options(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch, on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def combine(terms: list[Term], means: dict[str, Tensor]) -> Tensor:
    """Return the weighted sum of the terms of a loss, given the mean of each."""
    return torch.stack([term.factor * means[term.name] for term in terms]).sum()
