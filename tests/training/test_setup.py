"""Checks of the trainer configuration, and compiled layers."""

from argparse import Namespace

import pytest
import torch
from hydra.types import RunMode

from rdm.data.batch import Batch
from rdm.errors import UserError
from rdm.systems.base import System
from rdm.training.setup import check_trainer, compile_layers, validation_interval
from tests.builders import FixedCopies, batch_of, tiny_system, toy_data
from tests.test_config import config

TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "GROUP_RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8"}


def gradients(system: System, batch: Batch) -> dict[str, torch.Tensor]:
    system.zero_grad()
    torch.stack([term.total for term in system.loss(batch)]).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in system.named_parameters()}


@pytest.mark.parametrize("mode", [RunMode.RUN, RunMode.MULTIRUN])
@pytest.mark.parametrize("cluster", [{}, {"SLURM_NTASKS": "16", "SLURM_JOB_NAME": "train"}, TORCHRUN])
def test_a_sweep_over_several_devices(mode: RunMode, cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused where the command would be run again for every rank, but not where a cluster runs them."""
    monkeypatch.setattr("rdm.training.setup.HydraConfig.get", lambda: Namespace(mode=mode))
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    trainer = config("trainer=ddp", "trainer.devices=8", "trainer.num_nodes=2").trainer
    if mode is RunMode.MULTIRUN and not cluster:
        with pytest.raises(UserError, match="ddp_fork"):
            check_trainer(trainer)
    else:
        check_trainer(trainer)


@pytest.mark.parametrize("able", [{"avx512_bf16": True}, {"amx_bf16": True, "avx512_bf16": False}, {"avx2": True}])
def test_bf16_where_the_processor_has_it(able: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: able)
    monkeypatch.setattr("rdm.training.setup.HydraConfig.get", lambda: Namespace(mode=RunMode.RUN))
    trainer = config("trainer.precision=bf16-mixed").trainer
    if "avx2" in able:
        with pytest.raises(UserError, match="slower on this CPU; use 32-true"):
            check_trainer(trainer)
    else:
        check_trainer(trainer)


def test_validation_is_counted_in_optimiser_steps() -> None:
    """As checkpoints are."""
    trainer = config("trainer.val_check_interval=5", "trainer.accumulate_grad_batches=8").trainer
    assert validation_interval(trainer) == 40


@pytest.mark.slow
def test_compiled_layers_give_the_same_gradients() -> None:
    """For batches of two shapes, with unchanged parameter names."""
    data = toy_data(train=24)
    system = tiny_system(data.vocab, copies=FixedCopies())
    batches = [batch_of(data, list(range(8))), batch_of(data, list(range(8, 20)))]
    assert batches[0].target.shape != batches[1].target.shape
    names, expected = list(system.state_dict()), [gradients(system, batch) for batch in batches]
    compile_layers(system)
    assert list(system.state_dict()) == names
    for batch, right in zip(batches, expected, strict=True):
        for name, gradient in gradients(system, batch).items():
            torch.testing.assert_close(gradient, right[name], rtol=1e-4, atol=1e-5, msg=name)
