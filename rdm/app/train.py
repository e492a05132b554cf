"""Train a system: ``python train.py [group=choice ...] [key=value ...]``; see conf/train.yaml."""

from contextlib import nullcontext
from copy import deepcopy
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from rdm.app.arguments import command
from rdm.app.checks import check_training, chosen
from rdm.app.resume import compatible_checkpoint, initialize, use_initial_codec
from rdm.app.run_folder import RunFolder, warn
from rdm.app.sweeps import JobResult, recorded_value, sweeping
from rdm.app.train_log import copy_output
from rdm.app.training_runs import run_name
from rdm.app.warm_start import check_warm_start, count_first_phase, first_phase, second_phase
from rdm.data.module import TextDataModule
from rdm.errors import require
from rdm.training.checkpoint_io import AtomicCheckpointIO
from rdm.training.loggers import CSVLogger
from rdm.training.module import TrainingModule
from rdm.training.saving import Saving
from rdm.training.setup import compile_layers, quiet_lightning, torchrun_processes


def job(config: DictConfig) -> JobResult:
    """Train the system of a configuration; in a sweep, finished runs are skipped."""
    run, resume = RunFolder(Path(config.run_dir)), sweeping() or config.resume == "auto"
    if sweeping() and run.finished:
        print(f"already finished: {config.run_dir}")
        return JobResult(recorded_value(), run=config.run_dir)
    quiet_lightning()
    check_training(config)
    check_warm_start(config)
    rank = getattr(rank_zero_only, "rank", None) or 0
    with run.locked(resume, rank), copy_output(run.folder / "train.log") if rank == 0 else nullcontext():
        if config.get("warm_start"):
            config = after_first_phase(config, run, resume)
        return fit(config, run, resume)


def after_first_phase(config: DictConfig, run: RunFolder, resume: bool) -> DictConfig:
    """Train the first phase of a warm start, unless it is finished, and return the configuration of the second."""
    causal = first_phase(config)
    first = RunFolder(Path(causal.run_dir))
    if run_to_resume(config, run, resume) is None and not first.finished:
        first.folder.mkdir(parents=True, exist_ok=True)
        fit(causal, first, resume)
    return second_phase(config)


def fit(config: DictConfig, run: RunFolder, resume: bool) -> JobResult:
    """Build data, system and trainer, and train until ``trainer.max_steps``."""
    pl.seed_everything(config.seed, workers=True, verbose=False)
    # A copy: Hydra resolves nodes that are referred to in place, and config.yaml keeps its interpolations.
    data: TextDataModule = instantiate(deepcopy(config).data.module)
    resumed = run_to_resume(config, run, resume)
    if config.init:
        use_initial_codec(config, data, resumed)
    module = build_module(config, data)
    checkpoint = None
    if resumed is not None:
        checkpoint = compatible_checkpoint(resumed, config, data.codec, module, other_folder=resumed is not run)
    elif config.init:
        initialize(config, module)
    else:
        module.system.load_pretrained()
    trainer = build_trainer(config)
    if config.get("warm_start") and checkpoint is None:
        count_first_phase(trainer, config)
    rank_zero_only(run.write_description)(config, data, HydraConfig.get().overrides.task)
    print_once = rank_zero_only(print)
    size = sum(parameter.numel() for parameter in module.parameters())
    print_once(f"{config.name}: {size:,} parameters, vocabulary {data.codec.vocab.size}, run {config.run_dir}")
    print_once(*data.summary(), sep="\n")
    if checkpoint is not None:
        print_once(f"resuming from {checkpoint}")
    steps, interval = config.trainer.max_steps, config.trainer.val_check_interval
    if interval > steps > -1:
        message = f"trainer.val_check_interval={interval} exceeds trainer.max_steps={steps}: validated at the end only"
        rank_zero_only(warn)(message)
    saving = trainer.checkpoint_callback
    with saving.handle_signals(trainer) if isinstance(saving, Saving) else nullcontext():
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    rank_zero_only(run.mark_finished)()
    print_once(f"done: {command('evaluate')} ckpt={config.run_dir}{' best=true' if config.best else ''}")
    return JobResult(float(trainer.callback_metrics.get("val/bleu", nan)), run=config.run_dir)


def build_module(config: DictConfig, data: TextDataModule) -> TrainingModule:
    """The system, fitted to the data, with its optimiser; ``config`` is completed with what the run folder records."""
    data.check()
    config.vocab = {**config.vocab, **asdict(data.codec.vocab)}
    name = run_name(config.name, HydraConfig.get().overrides.task, config.seed)
    config.choices = {
        **chosen(),
        **config.choices,
        "steps": config.decoding.get("steps"),
        "seed": config.seed,
        "name": name,
    }
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
    """The Lightning trainer with callbacks, loggers and our checkpoint files."""
    trainer = config.trainer
    return instantiate(
        trainer,
        # Lightning counts micro-batches; the configuration counts optimiser steps.
        val_check_interval=trainer.val_check_interval * trainer.accumulate_grad_batches,
        callbacks=[instantiate(callback) for callback in config.callbacks.values() if callback],
        logger=build_loggers(config),
        plugins=[AtomicCheckpointIO()],
        enable_progress_bar=trainer.get("enable_progress_bar", False),  # callbacks.progress shows the whole run
        # Under torchrun each rank is a process already, and must not fork.
        strategy="ddp" if torchrun_processes() and trainer.strategy == "ddp_fork" else trainer.strategy,
    )


def build_loggers(config: DictConfig) -> list[Logger]:
    """The chosen loggers; ``metrics.csv`` is always written."""
    chosen_loggers: list[Logger] = [instantiate(logger) for logger in (config.get("logger") or {}).values()]
    if not any(isinstance(logger, CSVLogger) for logger in chosen_loggers):
        chosen_loggers.insert(0, CSVLogger(config.run_dir, name="", version=""))
    return chosen_loggers


def run_to_resume(config: DictConfig, run: RunFolder, resume: bool) -> RunFolder | None:
    """The run whose checkpoint is resumed from: that of this folder, or the one named by ``ckpt``; None to start."""
    if resume and run.newest_first():
        return run
    if not config.ckpt:
        return None
    other = RunFolder.open(config.ckpt)
    require(len(other.newest_first()) > 0, f"ckpt: {config.ckpt} has no checkpoint yet")
    return other
