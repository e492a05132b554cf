"""Train a system: ``python train.py [group=choice ...] [key=value ...]``; see conf/train.yaml."""

from contextlib import nullcontext
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from rdm.app.checks import check_training, chosen
from rdm.app.resume import compatible_checkpoint
from rdm.app.run_folder import RunFolder
from rdm.app.sweeps import JobResult, recorded_value, sweeping
from rdm.app.training_runs import run_name
from rdm.data.module import TextDataModule
from rdm.errors import require
from rdm.training.checkpoints import AtomicCheckpointIO
from rdm.training.module import TrainingModule
from rdm.training.saving import Saving
from rdm.training.setup import compile_layers, quiet_lightning


def job(config: DictConfig) -> JobResult:
    """Train the system of a configuration; in a sweep, a finished run is not trained again."""
    run, resume = RunFolder(Path(config.run_dir)), sweeping() or config.resume == "auto"
    if sweeping() and run.finished:
        print(f"already finished: {config.run_dir}")
        return JobResult(recorded_value(), run=config.run_dir)
    check_training(config)
    quiet_lightning()
    with run.locked(resume, rank=getattr(rank_zero_only, "rank", None) or 0):
        return fit(config, run, resume)


def fit(config: DictConfig, run: RunFolder, resume: bool) -> JobResult:
    """Build data, system and trainer, and train until ``trainer.max_steps``."""
    pl.seed_everything(config.seed, workers=True, verbose=False)
    data: TextDataModule = instantiate(config.data.module)
    module = build_module(config, data)
    checkpoint = find_checkpoint(config, run, resume, data)
    trainer = build_trainer(config)
    rank_zero_only(run.write_description)(config, data, HydraConfig.get().overrides.task)
    print_once = rank_zero_only(print)
    size = sum(parameter.numel() for parameter in module.parameters())
    print_once(f"{config.name}: {size:,} parameters, vocabulary {data.codec.vocab.size}, run {config.run_dir}")
    print_once(*data.summary(), sep="\n")
    if checkpoint is not None:
        print_once(f"resuming from {checkpoint}")
    saving = trainer.checkpoint_callback
    with saving.handle_signals(trainer) if isinstance(saving, Saving) else nullcontext():
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    rank_zero_only(run.mark_finished)()
    print_once(f"done: python evaluate.py ckpt={config.run_dir}")
    return JobResult(float(trainer.callback_metrics.get("val/bleu", nan)), run=config.run_dir)


def build_module(config: DictConfig, data: TextDataModule) -> TrainingModule:
    """The system, fitted to the data, with its optimiser; ``config`` is completed with what the run folder records."""
    data.check()
    config.vocab = {**config.vocab, **asdict(data.codec.vocab)}
    name = run_name(config.name, HydraConfig.get().overrides.task, config.seed)
    config.choices = {**chosen(), "steps": config.decoding.get("steps"), "seed": config.seed, "name": name}
    system = instantiate(config.system)
    system.check(instantiate(config.decoding))
    system.fit_to(data.target_counts)
    if config.compile:
        compile_layers(system)
    module = TrainingModule(system, instantiate(config.optimizer))
    plain: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    module.save_hyperparameters({**plain, "tokenizer": data.codec.tokenizer.fingerprint()})
    return module


def build_trainer(config: DictConfig) -> pl.Trainer:
    """The Lightning trainer with callbacks, logger and our checkpoint files."""
    trainer = config.trainer
    return instantiate(
        trainer,
        # Lightning counts micro-batches; the configuration counts optimiser steps.
        val_check_interval=trainer.val_check_interval * trainer.accumulate_grad_batches,
        callbacks=[instantiate(callback) for callback in config.callbacks.values() if callback],
        logger=instantiate(config.logger),
        plugins=[AtomicCheckpointIO()],
    )


def find_checkpoint(config: DictConfig, run: RunFolder, resume: bool, data: TextDataModule) -> Path | None:
    """The checkpoint to resume from: of this run folder, or of the run named by ``ckpt``."""
    checkpoint = compatible_checkpoint(run, config, data.codec) if resume else None
    if checkpoint is None and config.ckpt:
        checkpoint = compatible_checkpoint(RunFolder.open(config.ckpt), config, data.codec, other_folder=True)
        require(checkpoint is not None, f"ckpt: {config.ckpt} has no checkpoint yet")
    return checkpoint
