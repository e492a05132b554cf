"""Before a trainer is built: combinations that would go wrong in silence, and messages nobody can act on."""

import logging
import warnings

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from rdm.errors import require


def check_trainer(trainer: DictConfig) -> None:
    """Refuse what Lightning accepts but does badly."""
    require(
        not (trainer.accelerator == "cpu" and "bf16" in str(trainer.precision)),
        "trainer.precision: bf16 on a CPU is up to a hundred times slower; use 32-true",
    )
    # Every rank of strategy=ddp runs the command again, and would start the sweep anew.
    require(
        not (trainer.strategy == "ddp" and trainer.devices != 1 and HydraConfig.get().mode is RunMode.MULTIRUN),
        "trainer.strategy=ddp cannot be used with -m; use trainer.strategy=ddp_fork",
    )


def quiet_lightning() -> None:
    """Silence notes on things that are as they should be here."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*Experiment logs directory .* exists.*",  # the run folder, which also holds the configuration
        ".*smaller than the logging interval.*",
        ".*LeafSpec.*",
    ):
        warnings.filterwarnings("ignore", message=message)
