"""Checks of the whole configuration of a training run."""

from argparse import Namespace

import pytest
from hydra.types import RunMode

from rdm.app.checks import check_trainer
from rdm.app.train import build_trainer
from rdm.errors import UserError
from tests.configs import config

TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "GROUP_RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8"}


@pytest.mark.parametrize("mode", [RunMode.RUN, RunMode.MULTIRUN])
@pytest.mark.parametrize("cluster", [{}, {"SLURM_NTASKS": "16", "SLURM_JOB_NAME": "train"}, TORCHRUN])
def test_a_sweep_over_several_devices(mode: RunMode, cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused where the command would be executed again for every rank, but not in a cluster job."""
    monkeypatch.setattr("rdm.app.checks.HydraConfig.get", lambda: Namespace(mode=mode))
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
    monkeypatch.setattr("rdm.app.checks.HydraConfig.get", lambda: Namespace(mode=RunMode.RUN))
    trainer = config("trainer.precision=bf16-mixed").trainer
    if "avx2" in able:
        with pytest.raises(UserError, match="slower on this CPU; use 32-true"):
            check_trainer(trainer)
    else:
        check_trainer(trainer)


def test_validation_is_counted_in_optimiser_steps() -> None:
    """Lightning counts micro-batches."""
    composed = config("trainer.val_check_interval=5", "trainer.accumulate_grad_batches=8", "callbacks.ema=null")
    composed.run_dir = "unused"
    assert build_trainer(composed).val_check_interval == 40
