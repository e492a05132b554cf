"""Fully sharded data parallelism (FSDP): every device keeps a shard of weights, gradients and optimiser state."""

from datetime import timedelta

from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from rdm.training.lightning_internals import set_data_parallel_size

FORWARD_METHODS = ("loss", "likelihood", "generate", "remember")
"""Methods besides ``forward`` in which modules use their weights; FSDP gathers these before each call."""


class Sharded(ModelParallelStrategy):
    """Strategy that shards over all devices of all nodes; a checkpoint is one file, as with every other strategy.

    Args:
        timeout_minutes: how long a rank waits for the others before it ends with an error.
    """

    def __init__(self, timeout_minutes: float = 30) -> None:
        timeout = timedelta(minutes=timeout_minutes)
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False, timeout=timeout)

    def setup_environment(self) -> None:
        set_data_parallel_size(self)
        super().setup_environment()


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor; must be called on all ranks. Other tensors are returned unchanged."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard(system: nn.Module, mesh: DeviceMesh) -> None:
    """Shard the parameters over ``mesh``: each layer of a stack is gathered by itself, all others together."""
    stacks = [module for module in system.modules() if isinstance(module, nn.ModuleList)]
    for layer in [layer for stack in stacks for layer in stack]:
        fully_shard(layer, mesh=mesh)
    # By default the root stays gathered after a forward pass, and EMA would swap the average with gathered copies.
    fully_shard(system, mesh=mesh, reshard_after_forward=True)
    for module in system.modules():
        for name in FORWARD_METHODS:
            if hasattr(module, name):
                register_fsdp_forward_method(module, name)
