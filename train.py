"""Train a system: ``python train.py [group=choice ...] [key=value ...]``; see conf/train.yaml."""

from contextlib import nullcontext
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from rdm import cli
from rdm.config import TrainOptions, check_options, check_types, chosen
from rdm.errors import require
from rdm.runs import Run, as_before
from rdm.sweeps import Outcome, sweeping, value_before
from rdm.training.checkpoints import AtomicCheckpointIO
from rdm.training.loggers import closing_wandb
from rdm.training.module import TrainingModule
from rdm.training.saving import Saving
from rdm.training.setup import (
    check_parts,
    check_task,
    check_trainer,
    compile_layers,
    quiet_lightning,
    validation_interval,
)


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
@cli.job
@closing_wandb()
def main(config: DictConfig) -> Outcome:
    run, resume = Run(Path(config.run_dir)), sweeping() or config.resume == "auto"
    if sweeping() and run.finished:
        print(f"finished already: {config.run_dir}")
        return Outcome(value_before())
    check_options(config, TrainOptions)
    check_task(config)
    check_types(config)
    check_parts(config)
    check_trainer(config.trainer)
    quiet_lightning()
    with run.taken(resume):
        return train(config, run, resume)


def train(config: DictConfig, run: Run, resume: bool) -> Outcome:
    pl.seed_everything(config.seed, workers=True, verbose=False)
    data = instantiate(config.data.module)
    data.check()
    config.vocab = {**config.vocab, **asdict(data.vocab)}
    config.choices = {**chosen(), "steps": config.decoding.get("steps")}
    system = instantiate(config.system)
    system.check(instantiate(config.decoding))
    system.fit_to(data.target_counts)
    if config.compile:
        compile_layers(system)
    module = TrainingModule(system, instantiate(config.optimizer))
    plain: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    module.save_hyperparameters({**plain, "tokenizer": data.tokenizer.fingerprint()})
    checkpoint = run.to_resume(config, data) if resume else None
    if checkpoint is None and config.ckpt:
        checkpoint = Run.open(config.ckpt).to_resume(config, data, elsewhere=True)
        require(checkpoint is not None, f"ckpt: {config.ckpt} has no checkpoint yet")

    trainer: pl.Trainer = instantiate(
        config.trainer,
        val_check_interval=validation_interval(config.trainer),
        callbacks=[instantiate(callback) for callback in config.callbacks.values() if callback],
        logger=instantiate(config.logger),
        plugins=[AtomicCheckpointIO()],
    )
    rank_zero_only(run.describe)(config, data, HydraConfig.get().overrides.task)
    size = sum(parameter.numel() for parameter in module.parameters())
    rank_zero_only(print)(f"{config.name}: {size:,} parameters, vocabulary {data.vocab.size}, run {config.run_dir}")
    for line in data.summary():
        rank_zero_only(print)(line)
    if checkpoint is not None:
        rank_zero_only(print)(f"going on from {checkpoint}")
    saving = trainer.checkpoint_callback
    with saving.handle_signals(trainer) if isinstance(saving, Saving) else nullcontext():
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    rank_zero_only(run.finish)()
    rank_zero_only(print)(f"done: python evaluate.py ckpt={config.run_dir}")
    return Outcome(float(trainer.callback_metrics.get("val/bleu", nan)))


if __name__ == "__main__":
    cli.run(main, as_before)
