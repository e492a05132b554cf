"""A resumed run equals an uninterrupted one to the bit: weights, optimiser state, log."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import LearningRateMonitor
from torch import nn
from torch.optim import AdamW

from rdm.errors import UserError
from rdm.files import replace_symlink
from rdm.training.checkpoint_io import AtomicCheckpointIO
from rdm.training.checkpoints import load_archive
from rdm.training.ema import EMA
from rdm.training.loggers import CSVLogger
from rdm.training.module import TrainingModule
from rdm.training.muon import Muon
from rdm.training.optim import InverseSqrt, Optimization
from rdm.training.parameter_groups import CombinedOptimizer, HiddenMatrices, NormsAndBiases, ParameterGroup
from rdm.training.sampling import SampleAtValidation
from rdm.training.saving import Saving
from rdm.training.training_cost import TrainingCost
from tests.builders import sampler, tiny_system, toy_data
from tests.same import assert_same_run
from tests.stops import SignalAfter

STEPS = 10
BATCHES = 7  # in an epoch


pytestmark = pytest.mark.filterwarnings("ignore:.*Experiment logs directory.*", "ignore:.*num_workers.*")


def train(
    folder: Path,
    steps: int = STEPS,
    stop: pl.Callback | None = None,
    ckpt: str = "last.ckpt",
    keep: int = 2,
    groups: dict[str, ParameterGroup] | None = None,
    **options: Any,
) -> pl.Trainer:
    """Train, or resume from ``ckpt`` if it exists in ``folder``."""
    pl.seed_everything(1, verbose=False)
    data = toy_data(train=24, max_tokens=64)
    assert len(data.train_dataloader()) == BATCHES
    module = TrainingModule(tiny_system(data.vocab, dim=16), Optimization(InverseSqrt(3), lr=1e-2, groups=groups))
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.2
    saving = Saving(str(folder / "checkpoints"), every_n_steps=3, keep=keep)
    sampling = SampleAtValidation(sampler(steps=2), sentences=2)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=steps,
        max_epochs=-1,
        callbacks=[EMA(), TrainingCost(), sampling, saving, LearningRateMonitor(), *([stop] if stop else [])],
        logger=CSVLogger(str(folder), name="", version=""),
        plugins=[AtomicCheckpointIO()],
        log_every_n_steps=1,
        check_val_every_n_epoch=None,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"val_check_interval": 3, **options},
    )
    file = folder / "checkpoints" / ckpt
    with saving.handle_signals(trainer):
        trainer.fit(module, data, ckpt_path=file if file.exists() else None)
    return trainer


def step_of(folder: Path) -> int:
    return load_archive(folder / "checkpoints" / "last.ckpt")["global_step"]


SCHEMES: dict[str, tuple[dict[str, int], tuple[int, ...]]] = {
    "within an epoch, at a validation, at the end of an epoch": ({}, (1, 3, 7, 8)),
    "at a validation at the end of an epoch": ({"val_check_interval": BATCHES}, (2, 7)),
    "accumulating; the last step of an epoch is shorter": ({"accumulate_grad_batches": 2}, (2, 4, 5)),
    "validating within a step": ({"accumulate_grad_batches": 2, "val_check_interval": 5}, (3, 8)),
}


@pytest.mark.parametrize(("options", "stops"), SCHEMES.values(), ids=SCHEMES.keys())
def test_resume_equals_uninterrupted_run(options: dict[str, int], stops: tuple[int, ...], tmp_path: Path) -> None:
    """The run is stopped and resumed at each of ``stops``; every stop saves the state after that step."""
    uninterrupted, resumed = tmp_path / "uninterrupted", tmp_path / "resumed"
    train(uninterrupted, **options)
    for step in stops:
        with pytest.raises(SystemExit) as stopped:
            train(resumed, stop=SignalAfter(step), **options)
        assert stopped.value.code == 143
        assert step_of(resumed) == step
    train(resumed, **options)
    assert step_of(resumed) == STEPS
    assert_same_run(uninterrupted, resumed)


def test_several_optimizers_resume_to_the_bit(tmp_path: Path) -> None:
    """Muon and two AdamW in one run, with gradient clipping, EMA and a learning-rate schedule."""
    groups = {
        "hidden": ParameterGroup(HiddenMatrices(), partial(Muon, lr=1e-2)),
        "undecayed": ParameterGroup(NormsAndBiases(), partial(AdamW, lr=1e-2, weight_decay=0.0)),
    }
    whole = train(tmp_path / "uninterrupted", groups=groups, gradient_clip_val=1.0)
    assert isinstance(whole.optimizers[0], CombinedOptimizer)
    for step in (2, 7):
        with pytest.raises(SystemExit):
            train(tmp_path / "resumed", stop=SignalAfter(step), groups=groups, gradient_clip_val=1.0)
    train(tmp_path / "resumed", groups=groups, gradient_clip_val=1.0)
    assert_same_run(tmp_path / "uninterrupted", tmp_path / "resumed")
    states = load_archive(tmp_path / "resumed" / "checkpoints" / "last.ckpt")["optimizer_states"]
    assert [len(group["params"]) > 0 for group in states[0]["param_groups"]] == [True] * 3


@pytest.mark.parametrize("steps", [4, BATCHES], ids=["within an epoch", "at the end of an epoch"])
def test_finished_run_can_be_extended(steps: int, tmp_path: Path) -> None:
    """A finished run that is extended equals a run with the larger ``max_steps``, but for the validation at its end."""
    train(tmp_path / "long")
    train(tmp_path / "short", steps=steps)
    assert step_of(tmp_path / "short") == steps
    train(tmp_path / "short")
    assert_same_run(tmp_path / "long", tmp_path / "short", also_validated_at=steps)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGUSR1", 138), ("SIGUSR2", 140), ("SIGINT", 130)])
def test_signal_saves_and_exits(name: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        train(tmp_path, stop=SignalAfter(2, name))
    assert stopped.value.code == code
    assert f"{name}: saved at step 2; run the same command with resume=auto to resume" in capsys.readouterr().out
    assert step_of(tmp_path) == 2


def test_submitit_requeues_after_the_save(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its handler of SIGUSR2 is called when the checkpoint is written, and is in place again after training."""
    found: list[int] = []

    def requeue(number: int, frame: Any) -> None:
        found.append(step_of(tmp_path))
        raise SystemExit(255)

    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with pytest.raises(SystemExit) as stopped:
            train(tmp_path, stop=SignalAfter(2, "SIGUSR2"))
        assert signal.getsignal(signal.SIGUSR2) is requeue
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert (found, stopped.value.code) == ([2], 255)
    assert "SIGUSR2: saved at step 2\n" in capsys.readouterr().out


class SignalBeforeFirstStep(pl.Callback):
    """Sets a signal before the first step."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        assert isinstance(trainer.checkpoint_callback, Saving)
        trainer.checkpoint_callback.signal = signal.SIGTERM


def test_signal_before_the_first_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new run saves nothing; a resumed run keeps its checkpoint."""
    with pytest.raises(SystemExit):
        train(tmp_path, stop=SignalBeforeFirstStep())
    assert "SIGTERM: stopped before step 1; run the same command with resume=auto to resume" in capsys.readouterr().out
    assert not (tmp_path / "checkpoints").exists()
    train(tmp_path, steps=4)
    with pytest.raises(SystemExit):
        train(tmp_path, stop=SignalBeforeFirstStep())
    assert "SIGTERM: saved at step 4; run the same command" in capsys.readouterr().out
    assert step_of(tmp_path) == 4


def test_old_checkpoints_are_removed(tmp_path: Path) -> None:
    """``keep`` numbered files stay, the last step among them; ``last.ckpt`` links to it, or is a file after a stop."""
    with pytest.raises(SystemExit):
        train(tmp_path, stop=SignalAfter(8))
    folder = tmp_path / "checkpoints"
    assert sorted(file.name for file in folder.iterdir()) == ["last.ckpt", "step_0000003.ckpt", "step_0000006.ckpt"]
    assert not (folder / "last.ckpt").is_symlink()
    train(tmp_path)
    assert sorted(file.name for file in folder.iterdir()) == ["last.ckpt", "step_0000009.ckpt", "step_0000010.ckpt"]
    assert (folder / "last.ckpt").readlink() == Path("step_0000010.ckpt")
    train(tmp_path, steps=12)
    assert (folder / "last.ckpt").readlink() == Path("step_0000012.ckpt")


class InterruptFirstStep(pl.Callback):
    """Interrupts the first step."""

    def on_train_batch_start(self, *_: Any) -> None:
        raise KeyboardInterrupt


def test_resumed_checkpoint_is_kept(tmp_path: Path) -> None:
    """The newer checkpoint is damaged: until it is overwritten, the resumed one is the only one left."""
    train(tmp_path / "uninterrupted", steps=9, keep=1)
    train(tmp_path / "resumed", steps=9)
    folder = tmp_path / "resumed" / "checkpoints"
    (folder / "step_0000009.ckpt").write_bytes(b"damaged")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(tmp_path / "resumed", steps=9, stop=InterruptFirstStep(), ckpt="step_0000006.ckpt", keep=1)
    assert step_of(tmp_path / "resumed") == 6
    train(tmp_path / "resumed", steps=9, keep=1)
    assert_same_run(tmp_path / "uninterrupted", tmp_path / "resumed")


@pytest.mark.parametrize("after", [False, True], ids=["before the link", "after the link"])
def test_kill_during_the_last_save(after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume has no step left, but updates ``last.ckpt`` and removes the old checkpoint."""
    train(tmp_path / "uninterrupted", steps=9)

    def point_and_die(link: Path, file: Path) -> None:
        if after or file.name != "step_0000009.ckpt":
            replace_symlink(link, file)
        if file.name == "step_0000009.ckpt":
            raise KeyboardInterrupt

    monkeypatch.setattr("rdm.training.saving.replace_symlink", point_and_die)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(tmp_path / "resumed", steps=9)
    monkeypatch.undo()
    assert len(list((tmp_path / "resumed" / "checkpoints").glob("step_*"))) == 3
    train(tmp_path / "resumed", steps=9, ckpt="step_0000009.ckpt")
    assert_same_run(tmp_path / "uninterrupted", tmp_path / "resumed")


def test_metrics_of_the_last_validation_are_restored(tmp_path: Path) -> None:
    """Sweeps read them, even if nothing is validated after the resume or no step is left."""
    uninterrupted = train(tmp_path / "uninterrupted")
    with pytest.raises(SystemExit):
        train(tmp_path / "resumed", stop=SignalAfter(STEPS - 1))
    for _ in range(2):
        assert train(tmp_path / "resumed").callback_metrics["val/loss"] == uninterrupted.callback_metrics["val/loss"]


def test_bad_values() -> None:
    for options in ({"every_n_steps": 0}, {"every_n_steps": 1, "keep": 0}):
        with pytest.raises(UserError, match="must be at least 1, got 0"):
            Saving("nowhere", **options)
