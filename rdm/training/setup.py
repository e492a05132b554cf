"""What is done once before a trainer is built."""

import logging
import os
import warnings

import torch
from pytorch_lightning.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from torch import nn


def in_cluster_job() -> bool:
    """Whether SLURM or torchrun has started this process, and with it all ranks."""
    return SLURMEnvironment.detect() or TorchElasticEnvironment.detect()


def torchrun_processes() -> int | None:
    """The number of processes that torchrun has started on this machine; None without torchrun."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if TorchElasticEnvironment.detect() else None


def computes_in_bf16() -> bool:
    """Whether this CPU has bfloat16 instructions."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # not in older versions
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


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
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*Experiment logs directory .* exists.*",  # the run folder exists before the logger
        ".*smaller than the logging interval.*",
        ".*LeafSpec.*",
        ".*sync_dist=True.*",  # validation metrics are reduced before they are logged
        ".*all_gather is deprecated.*",  # called by Lightning
        ".*`srun` command is available.*",  # on a login node, and for torchrun, this is as it should be
    ):
        warnings.filterwarnings("ignore", message=message)
