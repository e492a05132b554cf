"""Train a system: ``python train.py [group=choice ...] [key=value ...]``; see conf/train.yaml."""

from dataclasses import asdict

import hydra
import pytorch_lightning as pl
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from rdm import cli
from rdm.config import TrainOptions, check_options, check_types
from rdm.runs import Run
from rdm.training.module import TrainingModule
from rdm.training.setup import check_trainer, compile_layers, quiet_lightning


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
@cli.job
def main(config: DictConfig) -> None:
    check_options(config, TrainOptions)
    check_types(config)
    check_trainer(config.trainer)
    quiet_lightning()
    pl.seed_everything(config.seed, workers=True, verbose=False)

    data = instantiate(config.data.module)
    config.vocab = {**config.vocab, **asdict(data.vocab)}
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
    trainer.fit(module, data, ckpt_path=resume)
    rank_zero_only(print)(f"done: python evaluate.py ckpt={config.run_dir}")


if __name__ == "__main__":
    cli.run(main)
