"""Callback of ``experiment=smoke/gpu``: what has to be known about a new device before a long run.

Written and tested on a CPU. The checks of a GPU have never been run on one.
"""

import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor

from rdm.data.batch import Batch
from rdm.data.module import TextDataModule
from rdm.diffusion.copies import NoisedCopies
from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require
from rdm.machine import describe_machine
from rdm.systems.denoising import DenoisingSystem
from rdm.terms import mean_terms
from rdm.training.module import TrainingModule, combine

FLOAT32, HALF = 1e-3, 5e-2
"""Relative differences of loss and gradient that are expected of other kernels, and of half precision."""
NOT_A_GPU = "not possible: the device is a CPU"


class DrawnBefore(NoisedCopies):
    """Returns the same noised copies whatever the device: random numbers differ between devices."""

    def __init__(self, noised: NoisedBatch) -> None:
        self.noised = noised

    def __call__(self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None = None) -> NoisedBatch:
        moved = {each.name: getattr(self.noised, each.name) for each in fields(self.noised)}
        return NoisedBatch(**{name: to_device(value, x0.device) for name, value in moved.items()})

    def draw(self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None) -> Any:
        raise AssertionError("the copies are drawn before")


class DeviceCheck(pl.Callback):
    """Compares loss and gradient with those of the CPU, measures speed and memory, counts synchronisations.

    Args:
        sentences: number of sentences of the comparison.
        warm_up: number of steps before the speed is measured.
    """

    def __init__(self, sentences: int = 16, warm_up: int = 20) -> None:
        require(sentences >= 1, f"callbacks.device_check.sentences must be at least 1, got {sentences}")
        require(warm_up >= 1, f"callbacks.device_check.warm_up must be at least 1, got {warm_up}")
        self.sentences, self.warm_up = sentences, warm_up
        self.lines: list[str] = []
        self.tokens: Tensor | int = 0
        self.recording: AbstractContextManager[Any] = nullcontext()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        steps = trainer.max_steps
        enough = steps > self.warm_up + 1
        require(enough, f"trainer.max_steps={steps} must exceed callbacks.device_check.warm_up={self.warm_up} by 2")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        data: TextDataModule = trainer.datamodule  # type: ignore[attr-defined]
        device, examples = trainer.strategy.root_device, data.train_examples
        batch = examples[range(min(self.sentences, len(examples)))]
        self.compare(pl_module.system, batch, device, str(trainer.precision))
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def compare(self, system: Any, batch: Batch, device: torch.device, precision: str) -> None:
        """Add lines about loss and gradient on ``device``, relative to those on the CPU in float32."""
        require(isinstance(system, DenoisingSystem), "callbacks.device_check is for diffusion systems: leave it out")
        reference = loss_and_gradient(system, batch, torch.device("cpu"), None)
        kinds = {"float32": None, "bf16": torch.bfloat16} | ({"fp16": torch.float16} if "16-m" in precision else {})
        for name, dtype in kinds.items():
            if device.type == "cpu" and dtype != torch.bfloat16:
                self.lines.append(f"loss and gradient in {name} against the CPU: {NOT_A_GPU}")
                continue
            found, limit = loss_and_gradient(system, batch, device, dtype), FLOAT32 if dtype is None else HALF
            loss, gradient = (float((a - b).norm() / b.norm()) for a, b in zip(found, reference, strict=True))
            verdict = "ok" if max(loss, gradient) < limit else f"more than the {limit:g} that is expected"
            self.lines.append(f"{name}: loss differs by {loss:.1e}, gradient by {gradient:.1e}: {verdict}")

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.warm_up:
            if trainer.strategy.root_device.type == "cuda":
                torch.cuda.set_sync_debug_mode("warn")
            self.recording = warnings.catch_warnings(record=True)
            self.found = self.recording.__enter__()
            warnings.simplefilter("always")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        device = trainer.strategy.root_device
        if trainer.global_step == self.warm_up + 1:
            self.recording.__exit__(None, None, None)
            if device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
                waits = sum("synchroniz" in str(each.message) for each in self.found)
                self.lines.append(f"device synchronisations in a step: {waits} (docs/scaling.md says which)")
                torch.cuda.synchronize(device)
            else:
                self.lines.append(f"device synchronisations in a step: {NOT_A_GPU}")
            self.start = time.perf_counter()
        elif trainer.global_step > self.warm_up + 1:
            self.tokens = self.tokens + batch.counts["tokens"]
            if trainer.global_step == trainer.max_steps:
                tokens = int(self.tokens)  # waits for the device
                self.lines.append(f"speed: {tokens / (time.perf_counter() - self.start):,.0f} target tokens/s")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        device, shown = trainer.strategy.root_device, NOT_A_GPU
        if device.type == "cuda":
            shown = f"{torch.cuda.max_memory_allocated(device) / 2**30:.2f} GiB"
        self.lines.append(f"peak memory: {shown}; compare: python -m rdm.plan experiment=smoke/gpu hardware=<gpu>")
        self._print(trainer)

    @rank_zero_only
    def _print(self, trainer: pl.Trainer) -> None:
        version = f"torch {torch.__version__}, CUDA {torch.version.cuda}, {trainer.precision}"
        print("please report:", describe_machine(trainer.world_size), version, *self.lines, sep="\n  ")


def loss_and_gradient(
    system: DenoisingSystem, batch: Batch, device: torch.device, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of a copy of ``system`` on ``device``, in evaluation mode and with noise drawn on the CPU."""
    noised = deepcopy(system).cpu()
    copies = noised.copies(noised.process, batch.target.cpu(), torch.Generator().manual_seed(0))
    copy = deepcopy(system).to(device).eval()
    copy.zero_grad()
    copy.copies = DrawnBefore(copies)
    moved = replace(batch, source=batch.source.to(device), target=batch.target.to(device))
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
        terms = copy.loss(moved, torch.Generator(device).manual_seed(0))
    loss = combine(terms, mean_terms(terms, copy.counts(moved)))
    loss.backward()
    gradient = [each.grad.flatten().float().cpu() for each in copy.parameters() if each.grad is not None]
    return loss.detach().float().cpu()[None], torch.cat(gradient)


def to_device(value: Any, device: torch.device) -> Any:
    """A tensor on ``device``; anything else as it is."""
    return value.to(device) if isinstance(value, Tensor) else value
