"""Before a trainer is built: combinations that would go wrong in silence, and messages nobody can act on."""

import logging
import warnings

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from omegaconf import DictConfig
from torch import nn

from rdm.config import get_class_of
from rdm.errors import require


def check_task(config: DictConfig) -> None:
    """Refuse text of another kind than the system is for, and a diffusion that it would not train."""
    # A system that takes any diffusion is called after it, and the others have names of their own.
    diffusion = (config.get("diffusion") or {}).get("name", config.name)
    require(diffusion == config.name, f"diffusion={diffusion} is not for the system {config.name}: leave one out")
    data, system = (get_class_of(node) for node in (config.data.get("module"), config.system))
    continues, alone = (getattr(made, "open_ended", None) for made in (system, data))
    name = config.data.name
    require(continues or not alone, f"data={name} has no sources to read: add system=lm or system=ar_lm")
    require(alone or not continues, f"data={name} has sources, but this system continues text: try data=wikitext2")


def check_parts(config: DictConfig) -> None:
    """Refuse a weight that the loss does not have, and windows of text that the network has no positions for."""
    weighed = "reweighting" in config.system.get("objective", {})
    require(weighed or not config.get("reweighting"), f"reweighting: the loss of {config.name} has no weight to choose")
    length, positions = config.data.get("length", 0), config.model.max_length
    require(length <= positions, f"model.max_length={positions} is less than data.length={length}, a window of text")


def check_trainer(trainer: DictConfig) -> None:
    """Refuse what Lightning accepts but does badly."""
    precision, strategy = str(trainer.precision), str(trainer.strategy)
    # Pure half precision would round the probabilities of the noise.
    allowed = ("32-true", "bf16-mixed", "16-mixed")
    require(precision in allowed, f"trainer.precision: {precision} is not one of {', '.join(allowed)}")
    require(
        trainer.accelerator != "cpu" or precision == "32-true" or (precision == "bf16-mixed" and computes_in_bf16()),
        "trainer.precision: half precision is up to a hundred times slower on this CPU; use 32-true",
    )
    steps, interval = trainer.max_steps, trainer.val_check_interval
    require(steps >= -1, f"trainer.max_steps must be a number of steps, or -1 for no end, got {steps}")
    require(interval > 0, f"trainer.val_check_interval must be above 0, got {interval}")
    # Other strategies run the command again for every rank, which would start the sweep anew; clusters do not.
    clusters = (SLURMEnvironment, TorchElasticEnvironment)
    alone = not any(cluster.detect() for cluster in clusters)
    swept = HydraConfig.get().mode is RunMode.MULTIRUN and trainer.devices != 1 and alone
    require(not swept or strategy == "ddp_fork", "with -m and several devices use trainer.strategy=ddp_fork")


def computes_in_bf16() -> bool:
    """Whether this CPU has instructions for products of bfloat16."""
    able: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of PyTorch cannot tell
    return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


def validation_interval(trainer: DictConfig) -> int:
    """In micro-batches, as Lightning counts; a configuration counts optimiser steps, here as everywhere else."""
    return trainer.val_check_interval * trainer.accumulate_grad_batches


def compile_layers(system: nn.Module) -> None:
    """Compile every layer of every stack in place; parameter names stay the same.

    The layers of a stack are alike, so each stack is compiled once. Shapes are dynamic, because batches differ in
    number of rows and length.
    """
    for stack in [module for module in system.modules() if isinstance(module, nn.ModuleList)]:
        for layer in stack:
            layer.compile(dynamic=True)


def quiet_lightning() -> None:
    """Silence messages of Lightning about intended settings."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*Experiment logs directory .* exists.*",  # the run folder exists before the logger
        ".*smaller than the logging interval.*",
        ".*LeafSpec.*",
    ):
        warnings.filterwarnings("ignore", message=message)
