"""A model spread over devices: each keeps a share of the weights and all that goes with them (FSDP)."""

from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

ENTRANCES = ("loss", "generate", "remember")
"""Methods besides ``forward`` in which modules use their own weights, which have to be gathered before."""


class Sharded(ModelParallelStrategy):
    """Every device, of all nodes, gets a share; a checkpoint is one file, as with any other strategy."""

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes  # not known before
        super().setup_environment()


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which every device may have a share only; to be called on all of them."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard(system: nn.Module, mesh: DeviceMesh) -> None:
    """Spread the parameters over ``mesh``: each layer of a stack is gathered when its turn comes, the rest at once."""
    stacks = [module for module in system.modules() if isinstance(module, nn.ModuleList)]
    for layer in [layer for stack in stacks for layer in stack]:
        fully_shard(layer, mesh=mesh)
    # Without the word the rest would stay gathered after validation, and averages would be swapped with copies.
    fully_shard(system, mesh=mesh, reshard_after_forward=True)
    for module in system.modules():
        for name in ENTRANCES:
            if hasattr(module, name):
                register_fsdp_forward_method(module, name)
