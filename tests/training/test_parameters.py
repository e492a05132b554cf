"""DDP is not told to look for parameters without a gradient: in every system, all of them get one."""

import pytest
import torch
from hydra.utils import instantiate
from pytorch_lightning.strategies import DDPStrategy

from rdm.bench.cases import random_batch
from tests.test_config import choices, config

SYSTEMS = [*(f"diffusion={name}" for name in choices("diffusion")), *(f"system={name}" for name in choices("system"))]


@pytest.mark.parametrize("override", SYSTEMS)
def test_every_parameter_gets_a_gradient(override: str) -> None:
    torch.manual_seed(0)
    composed = config(override)
    system = instantiate(composed.system)
    batch = random_batch(30, sentences=16, length=12, given="length" not in composed.data)
    torch.stack([term.total for term in system.loss(batch)]).sum().backward()
    assert [name for name, parameter in system.named_parameters() if parameter.grad is None] == []


def test_ddp_does_not_search_for_unused_parameters() -> None:
    trainer = instantiate(config("trainer=ddp_cpu", "trainer.strategy=ddp").trainer, logger=False)
    assert isinstance(trainer.strategy, DDPStrategy)
    assert not trainer.strategy._ddp_kwargs.get("find_unused_parameters", False)
