"""The training loop overfits, is reproducible to the bit, and decodes with the EMA weights."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import pytorch_lightning as pl
import torch

from rdm.data.pairs import PairsDataModule
from rdm.decoding.base import Decoding
from rdm.decoding.beam import BeamSearch
from rdm.decoding.easy_first import EasyFirst
from rdm.decoding.routing import Commit
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Cosine as CosineDecoding
from rdm.evaluation.metrics.corpus import sacre_bleu
from rdm.systems.base import System
from rdm.training.ema import EMA, warmed_up_decay
from rdm.training.module import TrainingModule, derive_seed
from rdm.training.optim import InverseSqrt, Optimization
from rdm.training.sampling import SampleAtValidation
from rdm.vocab import Vocab
from tests.builders import (
    RECIPES,
    batch_of,
    overfit,
    sampler,
    tiny_any_order,
    tiny_autoregressive,
    tiny_disco,
    tiny_system,
    toy_data,
)


def fit(data: PairsDataModule, steps: int, callbacks: list[pl.Callback], **options: Any) -> TrainingModule:
    module = TrainingModule(tiny_system(data.vocab), Optimization(InverseSqrt(warmup_steps=5), lr=1e-2))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=steps,
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        **{"logger": False, **options},
    )
    trainer.fit(module, data)
    return module


SYSTEMS: dict[str, tuple[Callable[[Vocab], System], Decoding]] = {
    **{name: (partial(tiny_system, name=name, dim=64), sampler(name)) for name in RECIPES},
    "any_order": (
        partial(tiny_any_order, dim=64),
        Sampler("rdm_commit", 5, Commit(), CosineDecoding(), length_candidates=3),
    ),
    "disco": (partial(tiny_disco, dim=64), EasyFirst("easy_first", length_candidates=3)),
    "ar": (partial(tiny_autoregressive, dim=64), BeamSearch("beam", beam_size=3)),
}


FEWER_STEPS = {"cmlm_smart": 250, "cmlmc": 200, "disco": 250, "any_order": 250}
"""Systems with several passes in a step, or that learn faster than in 400 steps."""


SLOW = ("cmlm_smart", "rdm_mixture", "multinomial", "absorbing", "cmlmc", "cmlm", "rdm_multinomial")
"""Trained by ``make test-slow``: the tests of their losses cover what differs from a system that is trained here."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SYSTEMS]
)
def test_overfits_32_pairs(name: str) -> None:
    """Every system memorises 32 pairs and decodes them with its own strategy."""
    data = toy_data(train=32)
    batch = batch_of(data, list(range(32)))
    build, decoding = SYSTEMS[name]
    torch.manual_seed(1)
    system = build(data.vocab)
    overfit(system, batch, steps=FEWER_STEPS.get(name, 400), lr=4e-3)
    targets = data.corpus.read("train")[1]
    order = batch.ids.tolist()
    rows = system.generate(batch.source, decoding, torch.Generator().manual_seed(0)).tokens
    outputs = data.codec.tokenizer.decode(rows.tolist())
    assert sacre_bleu(outputs, [[targets[i] for i in order]])[0] > 90, outputs[:3]


class Losses(pl.Callback):
    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.values.append(float(outputs["loss"]))


def test_same_seed_same_losses() -> None:
    """Losses are equal to the bit; another seed gives other losses."""
    runs = []
    for seed in (1, 1, 2):
        pl.seed_everything(seed, verbose=False)
        losses = Losses()
        fit(toy_data(max_tokens=256), steps=8, callbacks=[losses, EMA()])
        runs.append(losses.values)
    assert len(runs[0]) == 8
    assert runs[0] == runs[1] != runs[2]


class RecordWeights(pl.Callback):
    """Records the raw weights at the end of every training step."""

    def __init__(self) -> None:
        self.raw: list[torch.Tensor] = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        self.raw.append(pl_module.system.denoiser.network.tokens.weight.detach().clone())


@pytest.mark.parametrize("ema_first", [True, False])
def test_validation_decodes_with_ema_weights(ema_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of callbacks."""
    seen, weights, decay = [], RecordWeights(), 0.9
    data = toy_data(max_tokens=256)
    sampling = SampleAtValidation(sampler(), sentences=2)
    monkeypatch.setattr(
        "rdm.systems.diffusion.DiffusionSystem.generate",
        lambda self, *_, **__: seen.append(self.denoiser.network.tokens.weight.detach().clone()) or 1 / 0,
    )
    callbacks = [EMA(decay), sampling] if ema_first else [sampling, EMA(decay)]
    with pytest.raises(ZeroDivisionError):
        fit(data, 6, [weights, *callbacks], val_check_interval=4, check_val_every_n_epoch=None)
    average = weights.raw[0]
    for number, raw in enumerate(weights.raw[1:4], 1):
        average = torch.lerp(average, raw, 1 - warmed_up_decay(decay, number))
    torch.testing.assert_close(seen[0], average)
    assert not torch.allclose(seen[0], weights.raw[3], atol=1e-3)


class GradientStatistics(pl.Callback):
    """Norm and largest entry of the gradients that the optimiser receives."""

    norm: float
    largest: float

    def on_before_zero_grad(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any) -> None:
        gradients = [parameter.grad for parameter in pl_module.parameters() if parameter.grad is not None]
        if gradients:
            self.norm = float(torch.nn.utils.get_total_norm(gradients))
            self.largest = max(float(gradient.abs().max()) for gradient in gradients)


def test_mixed_precision_with_clipping() -> None:
    """As ``trainer=gpu``, on a CPU; Lightning's own clipping refuses fused optimisers in mixed precision."""
    losses, clipped = Losses(), GradientStatistics()
    options = {"precision": "bf16-mixed", "gradient_clip_val": 0.01}
    module = fit(toy_data(max_tokens=128), 2, [losses, EMA(), clipped], **options)
    assert len(losses.values) == 2
    assert all(torch.tensor(losses.values).isfinite())
    assert clipped.norm == pytest.approx(0.01, rel=1e-3)
    assert module.trainer.optimizers[0].defaults["fused"]


@pytest.mark.parametrize(("precision", "fused"), [("32-true", True), ("bf16-mixed", True), ("16-mixed", False)])
def test_no_fused_optimizer_with_a_loss_scale(precision: str, fused: bool) -> None:
    """Fused optimisers unscale in their step, so the overflow check would not run in a skipped step."""
    module = TrainingModule(tiny_system(toy_data().vocab), Optimization(InverseSqrt(warmup_steps=5)))
    module.trainer = Mock(precision=precision, gradient_clip_val=None, estimated_stepping_batches=10)
    assert module.configure_optimizers()["optimizer"].defaults["fused"] is fused


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_clipping_by_value(precision: str) -> None:
    clipped = GradientStatistics()
    options = {"precision": precision, "gradient_clip_val": 0.001, "gradient_clip_algorithm": "value"}
    fit(toy_data(max_tokens=128), 2, [clipped], **options)
    assert clipped.largest == pytest.approx(0.001)
    assert clipped.norm > 0.01


def test_noise_differs_by_seed_step_micro_batch_and_rank() -> None:
    keys = [(1, 0, 0, 0), (2, 0, 0, 0), (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1), (1, 10, 0, 0), (11, 0, 0, 0)]
    assert len({derive_seed(kind, *key) for kind in ("noise", "dropout") for key in keys}) == 2 * len(keys)
    assert derive_seed("noise", *keys[0]) == derive_seed("noise", *keys[0])


def test_ema_decay_warms_up() -> None:
    assert warmed_up_decay(0.9999, 0) == pytest.approx(0.1)
    assert warmed_up_decay(0.9999, 10**7) == 0.9999


def test_samples_are_logged(tmp_path: Path) -> None:
    """BLEU is logged; the table, the trace and the decoding page are written beside the CSV log."""
    logger = pl.loggers.CSVLogger(tmp_path, name="", version="")
    data = toy_data(max_tokens=256)
    sampling = SampleAtValidation(sampler(), sentences=8, shown=2)
    module = fit(data, 4, [sampling, EMA()], logger=logger, val_check_interval=4, check_val_every_n_epoch=None)
    assert "val/bleu" in module.trainer.callback_metrics
    page = (tmp_path / "samples" / "step_0000004.md").read_text()
    sources, references = data.corpus.read("valid")
    assert all(f"| {sources[i]} | {references[i]} |" in page for i in range(2))
    assert "[<mask>]" in page
    assert len([line for line in page.splitlines() if line[:4].strip().isdigit()]) == 6  # initial noise, 5 iterations
    html = (tmp_path / "samples" / "step_0000004.html").read_text()
    assert html.count('<section class="example"') == 2
    assert all(sources[i] in html for i in range(2))
    assert html.count('<li class="step"') == 2 * 6


class Order(pl.Callback):
    """Records the examples of every batch, by epoch."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[list[int]]] = {}

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.epochs.setdefault(trainer.current_epoch, []).append(batch.ids.tolist())


def test_epochs_are_shuffled_differently() -> None:
    order = Order()
    data = toy_data(train=64, max_tokens=256)
    fit(data, steps=2 * len(data.train_dataloader()), callbacks=[order])
    first, second = order.epochs[0], order.epochs[1]
    assert first != second
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(64))
