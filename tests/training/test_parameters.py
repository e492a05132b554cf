"""A step of every system uses all parameters, as DDP requires, with at most one device synchronisation."""

from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rdm.bench.inputs import random_batch
from tests.test_config import choices, config

PARTS = ("objective", "target_length", "length_head", "self_conditioning", "pairing", "steps")
SYSTEMS = [
    *(f"diffusion={name}" for name in choices("diffusion")),
    *(f"system={name}" for name in choices("system")),
    *(f"diffusion/{part}={name}" for part in PARTS for name in choices(f"diffusion/{part}")),
]


PASSES = {"system=cmlmc": 3, "diffusion=cmlmc": 3, "system=levt": 3}
"""Systems with passes at several sets of positions in a step: one synchronisation each."""


class Synchronisations(TorchDispatchMode):
    """Counts conversions of masks to positions, whose number has to be copied from the device."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put):
            self.count += any(isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1])
        self.count += func.overloadpacket is torch.ops.aten.nonzero
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("override", SYSTEMS)
def test_all_parameters_get_a_gradient(override: str) -> None:
    torch.manual_seed(0)
    composed = config(override)
    system = instantiate(composed.system)
    batch = random_batch(30, sentences=16, length=12, with_source="length" not in composed.data)
    with Synchronisations() as synchronisations:
        torch.stack([term.total for term in system.loss(batch)]).sum().backward()
    assert [name for name, parameter in system.named_parameters() if parameter.grad is None] == []
    assert synchronisations.count <= PASSES.get(override, 1)


def test_ddp_does_not_search_for_unused_parameters() -> None:
    trainer = instantiate(config("trainer=ddp_cpu", "trainer.strategy=ddp").trainer, logger=False)
    assert isinstance(trainer.strategy, DDPStrategy)
    assert not trainer.strategy._ddp_kwargs.get("find_unused_parameters", False)
