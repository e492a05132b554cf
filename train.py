"""Train a system: ``python train.py [group=choice ...] [key=value ...]``; see conf/train.yaml."""

from dataclasses import asdict
from math import nan
from pathlib import Path

import hydra
import pytorch_lightning as pl
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from rdm import cli
from rdm.config import TrainOptions, check_options, check_types, chosen
from rdm.runs import Run
from rdm.sweeps import Outcome, sweeping, value_before
from rdm.training.loggers import one_run
from rdm.training.module import TrainingModule
from rdm.training.setup import check_trainer, compile_layers, quiet_lightning


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
@cli.job
@one_run
def main(config: DictConfig) -> Outcome:
    if sweeping() and Run(Path(config.run_dir)).finished:
        print(f"finished already: {config.run_dir}")
        return Outcome(value_before())
    check_options(config, TrainOptions)
    check_types(config)
    check_trainer(config.trainer)
    quiet_lightning()
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
    resume = None
    if config.ckpt:
        earlier = Run.open(config.ckpt)
        earlier.check_same_tokenizer(data)
        earlier.check_same_system(config)
        resume = earlier.checkpoints()[0]

    trainer: pl.Trainer = instantiate(
        config.trainer,
        callbacks=[instantiate(callback) for callback in config.callbacks.values() if callback],
        logger=instantiate(config.logger),
    )
    rank_zero_only(Run.create)(config.run_dir, config, data)
    for logger in trainer.loggers:
        logger.log_hyperparams(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    size = sum(parameter.numel() for parameter in module.parameters())
    rank_zero_only(print)(f"{config.name}: {size:,} parameters, vocabulary {data.vocab.size}, run {config.run_dir}")
    for line in data.summary():
        rank_zero_only(print)(line)
    trainer.fit(module, data, ckpt_path=resume, weights_only=True)
    rank_zero_only(Run(Path(config.run_dir)).finish)()
    rank_zero_only(print)(f"done: python evaluate.py ckpt={config.run_dir}")
    return Outcome(float(trainer.callback_metrics.get("val/bleu", nan)))


if __name__ == "__main__":
    cli.run(main)
