"""Non-finite steps end the run or are skipped, on all ranks alike, and can be replayed."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins import MixedPrecision

from rdm.errors import UserError
from rdm.training.guard import Guard, list_examples
from tests.scripts import script
from tests.test_end_to_end import SMALL
from tests.training.guarded import Poisoned


class Weights(pl.Callback):
    """Records weights and optimiser state after every micro-batch."""

    def __init__(self) -> None:
        self.seen: list[list[torch.Tensor]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        state = trainer.optimizers[0].state
        moments = [value for parameter in pl_module.parameters() for value in state[parameter].values()]
        self.seen.append([tensor.detach().clone() for tensor in [*pl_module.parameters(), *moments]])

    def changed(self, micro_batch: int) -> bool:
        pairs = zip(self.seen[micro_batch - 1], self.seen[micro_batch], strict=True)
        return not all(torch.equal(before, after) for before, after in pairs)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_non_finite_loss_ends_the_run(loss: float, tmp_path: Path) -> None:
    """The error names the step and its examples; the saved file holds plain data."""
    module, weights = Poisoned(at=2, loss=loss, gradient=1.0), Weights()
    with pytest.raises(UserError, match="step 2: the loss is not finite") as raised:
        module.fit(Guard(str(tmp_path)), weights)
    assert f"in a batch of examples {', '.join(map(str, module.ids[2]))};" in str(raised.value)
    assert f"python -m rdm.replay {tmp_path / 'step_0000002.pt'}" in str(raised.value)
    assert [file.name for file in tmp_path.iterdir()] == ["step_0000002.pt"]
    saved = torch.load(tmp_path / "step_0000002.pt", weights_only=True)
    assert saved["step"] == 2
    (part,) = saved["parts"]
    assert part["ids"].tolist() == module.ids[2]
    again = module.data.examples("train")[module.ids[2]]
    assert torch.equal(part["source"], again.source)
    assert torch.equal(part["target"], again.target)
    before = weights.seen[-1]
    assert all(torch.equal(tensor, old) for tensor, old in zip(module.parameters(), before, strict=False))
    assert all(torch.equal(saved["weights"][name], value) for name, value in module.system.state_dict().items())


def test_non_finite_gradient_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="step 1: the gradient is not finite"):
        Poisoned(at=1, loss=1.0).fit(Guard(str(tmp_path)))


@pytest.mark.parametrize(("loss", "gradient"), [(float("nan"), float("nan")), (1.0, float("inf"))])
def test_step_is_skipped(loss: float, gradient: float, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A skipped step changes neither weights nor optimiser state; the count of skipped steps is saved."""
    module, weights, guard = Poisoned(at=2, loss=loss, gradient=gradient), Weights(), Guard(str(tmp_path), skip=1)
    module.fit(weights, guard, steps=5)
    assert [weights.changed(number) for number in range(1, 5)] == [True, False, True, True]
    assert all(tensor.isfinite().all() for tensor in weights.seen[-1])
    assert (tmp_path / "step_0000002.pt").is_file()
    assert "skipped, 1 of at most 1" in capsys.readouterr().err
    later = Guard(str(tmp_path), skip=1)
    later.load_state_dict(guard.state_dict())
    with pytest.raises(UserError, match=r"callbacks\.guard\.skip=2 would skip up to 2"):
        Poisoned(at=1).fit(later)


def test_error_names_the_accumulated_micro_batch(tmp_path: Path) -> None:
    """The loss of the second of three micro-batches is not finite; all three are saved."""
    module = Poisoned(at=4)
    with pytest.raises(UserError, match="step 1: the loss is not finite") as raised:
        module.fit(Guard(str(tmp_path)), accumulate_grad_batches=3)
    assert re.findall(r"examples ([\d, ]+);", str(raised.value)) == [", ".join(map(str, module.ids[4]))]
    parts = torch.load(tmp_path / "step_0000001.pt", weights_only=True)["parts"]
    assert [part["ids"].tolist() for part in parts] == [module.ids[number] for number in (3, 4, 5)]
    assert [part["finite_loss"] for part in parts] == [True, False, True]


def test_finite_run_is_unchanged(tmp_path: Path) -> None:
    plain = Poisoned(at=-1)
    plain.fit()
    guarded = Poisoned(at=-1)  # built now: its constructor seeds the weights
    guarded.fit(Guard(str(tmp_path / "not_finite")))
    assert not list(tmp_path.iterdir())
    for one, two in zip(plain.parameters(), guarded.parameters(), strict=True):
        assert torch.equal(one, two)


def test_bfloat16(tmp_path: Path) -> None:
    module, guard = Poisoned(at=1), Guard(str(tmp_path), skip=1)
    module.fit(guard, precision="bf16-mixed")
    assert guard.skipped == 1
    assert all(parameter.isfinite().all() for parameter in module.parameters())


def test_overflow_is_left_to_the_loss_scaler(tmp_path: Path) -> None:
    """The scaler skips the step and lowers its scale; at scale 1 the guard takes over."""

    def precision(scale: float) -> MixedPrecision:
        return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))

    module, scaled = Poisoned(at=1, loss=1.0, gradient=float("inf")), precision(2.0)
    module.fit(Guard(str(tmp_path)), plugins=[scaled])
    assert scaled.scaler is not None
    assert scaled.scaler.get_scale() == 1.0
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="the gradient is not finite"):
        Poisoned(at=1, loss=1.0, gradient=float("inf")).fit(Guard(str(tmp_path)), plugins=[precision(1.0)])
    with pytest.raises(UserError, match="the loss is not finite"):
        Poisoned(at=1).fit(Guard(str(tmp_path)), plugins=[precision(2.0)])


@pytest.mark.slow
def test_two_ranks_skip_the_same_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.guarded", str(tmp_path)]
    done = subprocess.run(command, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (skipped, _, first), (also, ids, second) = (torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1))
    assert skipped == also == 1
    assert all(torch.equal(first[name], second[name]) and first[name].isfinite().all() for name in first)
    assert f"in a batch of examples {', '.join(map(str, ids))};" in done.stderr
    assert done.stderr.count("skipped, 1 of") == 1
    parts = torch.load(tmp_path / "not_finite" / "step_0000001.pt", weights_only=True)["parts"]
    assert [(part["rank"], part["finite_loss"]) for part in parts] == [(0, True), (0, True), (1, False), (1, True)]


def test_long_lists_of_examples_are_shortened() -> None:
    parts = [{"ids": torch.arange(103), "finite_loss": False}, {"ids": torch.arange(5), "finite_loss": True}]
    assert list_examples(parts).endswith("98, 99 and 3 more")


@pytest.mark.parametrize("trainer", ["cpu", "ddp_cpu"])
def test_replay(trainer: str, tmp_path: Path) -> None:
    """A learning rate that diverges ends train.py with one line, and rdm.replay repeats the step."""
    run = tmp_path / "run"
    overrides = [*SMALL, f"trainer={trainer}", "optimizer.lr=1e38", "model.dropout=0.1", f"hydra.run.dir={run}"]
    done = script("train.py", *overrides, code=2)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "Traceback" not in done.stderr
    found = re.fullmatch(r"error: step (\d+): the loss is not finite, .*; python -m rdm.replay (\S+) repeats.*", line)
    assert found is not None, line
    assert Path(found[2]).parent == run / "not_finite"
    shown = script("-m", "rdm.replay", found[2]).stdout
    assert f"Step {found[1]}" in shown
    assert "nan" in shown
    assert "Gradients that are not finite: denoiser." in shown
