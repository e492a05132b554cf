"""A step of every system uses all parameters, as DDP requires, with at most one device synchronisation."""

import pytest
import torch
from hydra.utils import instantiate
from pytorch_lightning.strategies import DDPStrategy

from rdm.bench.inputs import random_batch
from rdm.models.encoder_decoder import EncoderDecoder
from tests.configs import choices, config
from tests.synchronisations import HostSynchronisations

PARTS = ("objective", "target_length", "length_head", "self_conditioning", "pairing", "steps")
SYSTEMS = [
    *(f"diffusion={name}" for name in choices("diffusion")),
    *(f"system={name}" for name in choices("system")),
    *(f"diffusion/{part}={name}" for part in PARTS for name in choices(f"diffusion/{part}")),
]


SYNCHRONISATIONS = {
    **dict.fromkeys(["system=cmlmc", "diffusion=cmlmc"], 3),  # passes at three sets of positions
    "system=levt": 4,  # three sets of positions, and the length of the longest row after a deletion
    "system=gpt2": 2,  # one inside transformers
    "system=gpvae_t5": 3,  # two inside transformers
    **dict.fromkeys(["system=ar_lm", "system=diffuseq"], 0),
}
"""Device synchronisations of a step; 1 for all others: the number of positions to project to the vocabulary."""


@pytest.mark.parametrize("override", SYSTEMS)
def test_all_parameters_get_a_gradient(override: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncoderDecoder, "_padded", lambda network, mask: True)  # as on a GPU
    torch.manual_seed(0)
    composed = config(override)
    system = instantiate(composed.system)
    batch = random_batch(30, sentences=16, length=12, with_source="length" not in composed.data)
    with HostSynchronisations() as found:
        torch.stack([term.total for term in system.loss(batch)]).sum().backward()
    assert [name for name, parameter in system.named_parameters() if parameter.grad is None] == []
    assert found.total == SYNCHRONISATIONS.get(override, 1), found.lines


def test_ddp_does_not_search_for_unused_parameters() -> None:
    trainer = instantiate(config("trainer=ddp_cpu", "trainer.strategy=ddp").trainer, logger=False)
    assert isinstance(trainer.strategy, DDPStrategy)
    assert not trainer.strategy._ddp_kwargs.get("find_unused_parameters", False)
