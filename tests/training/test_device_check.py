"""The checks of experiment=smoke/gpu, as far as a CPU goes."""

from pathlib import Path

import pytest
import torch

from rdm.app.errors import NO_GPU
from rdm.errors import UserError
from rdm.training import device_check
from rdm.training.device_check import NOT_A_GPU, DeviceCheck, loss_and_gradient
from tests.builders import batch_of, tiny_autoregressive, tiny_system, toy_data
from tests.scripts import script

CPU = torch.device("cpu")


def test_comparison_uses_the_same_noise_and_leaves_the_system_alone() -> None:
    data = toy_data()
    system, batch = tiny_system(data.vocab).train(), batch_of(data, [0, 1, 2])
    (loss, gradient), (again, same) = (loss_and_gradient(system, batch, CPU, None) for _ in range(2))
    assert torch.equal(loss, again)
    assert torch.equal(gradient, same)
    assert gradient.norm() > 0
    assert system.training
    assert all(parameter.grad is None for parameter in system.parameters())
    _, rounded = loss_and_gradient(system, batch, CPU, torch.bfloat16)
    assert 0 < (rounded - gradient).norm() < device_check.HALF * gradient.norm()


def test_a_difference_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    data = toy_data()
    system, batch = tiny_system(data.vocab), batch_of(data, [0, 1])
    check = DeviceCheck()
    check.compare(system, batch, CPU, "32-true")
    assert check.lines[0].endswith(NOT_A_GPU)
    assert check.lines[1].endswith(": ok")
    monkeypatch.setattr(device_check, "HALF", 1e-9)
    check.compare(system, batch, CPU, "32-true")
    assert check.lines[3].endswith("more than the 1e-09 that is expected")


def test_other_systems_are_refused() -> None:
    data = toy_data()
    with pytest.raises(UserError, match="is for diffusion systems"):
        DeviceCheck().compare(tiny_autoregressive(data.vocab), batch_of(data, [0]), CPU, "32-true")


def test_smoke_experiment_without_a_gpu(tmp_path: Path) -> None:
    """Everything that is possible is done, and what is not is said."""
    tiny = ["model=tiny", "model.dim=32", "model.hidden=32", "data.limit=200", "callbacks.sampling.sentences=2"]
    run = ["experiment=smoke/gpu", "trainer=cpu", "callbacks.progress=null", f"hydra.run.dir={tmp_path}"]
    done = script("train.py", *run, *tiny, "trainer.max_steps=5", "callbacks.device_check.warm_up=2")
    report = done.stdout.partition("please report:")[2]
    assert report.count(NOT_A_GPU) == 3
    assert "bf16: loss differs by" in report
    assert "target tokens/s" in report
    run[-1] += "/second"
    refused = script("train.py", *run, *tiny, "trainer.max_steps=3", "callbacks.device_check.warm_up=2", code=2)
    assert "trainer.max_steps=3 must exceed callbacks.device_check.warm_up=2 by 2" in refused.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_smoke_experiment_names_the_way_without_a_gpu(tmp_path: Path) -> None:
    refused = script("train.py", "experiment=smoke/gpu", f"hydra.run.dir={tmp_path}", code=2)
    assert refused.stderr.splitlines()[-1] == f"error: trainer: {NO_GPU}"
