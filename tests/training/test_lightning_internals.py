"""Contract with Lightning: each undocumented attribute, key or behaviour this package relies on.

A failure means that the installed version of pytorch-lightning differs from what ``rdm.training.lightning_internals``
assumes. Adapt that module, then raise the version bound in ``pyproject.toml``.
"""

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from packaging.requirements import Requirement
from pytorch_lightning.plugins import MixedPrecision
from pytorch_lightning.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from pytorch_lightning.plugins.precision import Precision
from pytorch_lightning.strategies import ModelParallelStrategy
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher, _SubprocessScriptLauncher

from rdm.data.step_loader import StepLoader
from rdm.training import lightning_internals as internals
from rdm.training.loggers import CSVLogger
from rdm.training.module import TrainingModule
from rdm.training.optim import InverseSqrt, Optimization
from tests.builders import tiny_system, toy_data

ADVICE = "adapt rdm/training/lightning_internals.py to this version of pytorch-lightning"


def fit(*callbacks: pl.Callback, steps: int = 4, **options: Any) -> pl.Trainer:
    pl.seed_everything(1, verbose=False)
    data = toy_data(train=24, max_tokens=128)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=steps,
        max_epochs=-1,
        limit_val_batches=0,
        callbacks=list(callbacks),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **{"logger": False, **options},
    )
    module = TrainingModule(tiny_system(data.vocab, dim=16), Optimization(InverseSqrt(3), lr=1e-2))
    trainer.fit(module, data)
    return trainer


def require_attribute(holder: object, name: str) -> Any:
    assert hasattr(holder, name), f"{type(holder).__name__}.{name} does not exist: {ADVICE}"
    return getattr(holder, name)


def test_version_is_bounded() -> None:
    """The declared range includes the installed version and excludes the next minor version."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (bound,) = [each for each in map(Requirement, project["dependencies"]) if each.name == "pytorch-lightning"]
    major, minor = pl.__version__.split(".")[:2]
    assert pl.__version__ in bound.specifier, f"pytorch-lightning {pl.__version__} is not {bound.specifier}: {ADVICE}"
    assert f"{major}.{int(minor) + 1}.0" not in bound.specifier, "bound pytorch-lightning from above in pyproject.toml"


class StepNumbers(pl.Callback):
    """Records Lightning's counter of logged steps and whether the fit is done, at the end of every step and epoch."""

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.steps: list[int] = []
        self.done: list[bool] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.counters.append(require_attribute(trainer.fit_loop.epoch_loop, "_batches_that_stepped"))
        self.steps.append(trainer.global_step)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.done.append(internals.is_fit_done(trainer))


def test_logged_step_counts_optimizer_steps() -> None:
    """The counter follows ``global_step``, one behind at the end of a batch; loggers read it."""
    numbers = StepNumbers()
    trainer = fit(numbers)
    assert numbers.steps == [1, 2, 3, 4]
    assert numbers.counters == [0, 1, 2, 3], f"_batches_that_stepped has another meaning: {ADVICE}"
    internals.set_logged_step(trainer, 7)
    assert trainer.fit_loop.epoch_loop.on_save_checkpoint()["_batches_that_stepped"] == 7, ADVICE


def test_fit_is_done_at_the_end_of_the_last_epoch_only() -> None:
    numbers = StepNumbers()
    batches = len(toy_data(train=24, max_tokens=128).train_dataloader())
    fit(numbers, steps=2 * batches)
    assert numbers.done == [False, True], f"fit_loop.done has another meaning: {ADVICE}"


class SaveAtEpochEnd(pl.Callback):
    """Keeps the checkpoint of the last epoch end, as ``Saving`` writes it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        trainer.save_checkpoint(self.file)


@pytest.mark.parametrize("whole_epochs", [False, True], ids=["within an epoch", "at the end of an epoch"])
def test_loop_state_has_the_expected_counters(whole_epochs: bool, tmp_path: Path) -> None:
    """The keys that ``rewind_to_step_boundary`` edits, with the values it corrects."""
    batches = len(toy_data(train=24, max_tokens=128).train_dataloader())
    assert batches > 2
    fit(SaveAtEpochEnd(tmp_path / "end.ckpt"), steps=batches if whole_epochs else 2)
    checkpoint = torch.load(tmp_path / "end.ckpt", weights_only=True)
    loops = checkpoint["loops"]["fit_loop"]
    for key in (
        "epoch_progress",
        "epoch_loop.batch_progress",
        "epoch_loop.scheduler_progress",
        "epoch_loop.automatic_optimization.optim_progress",
        "epoch_loop.state_dict",
    ):
        assert key in loops, f"checkpoint key loops.fit_loop.{key} does not exist: {ADVICE}"
    epochs, progress = loops["epoch_progress"]["current"], loops["epoch_loop.batch_progress"]
    assert progress["is_last_batch"] is whole_epochs, ADVICE
    assert epochs == {"ready": 1, "started": 1, "processed": 1, "completed": 0}, ADVICE
    internals.rewind_to_step_boundary(checkpoint)
    if whole_epochs:
        assert epochs == {"ready": 2, "started": 2, "processed": 1, "completed": 1}
        assert set(progress["current"].values()) == {0}
        assert not progress["is_last_batch"]
    else:
        assert epochs == {"ready": 1, "started": 1, "processed": 0, "completed": 0}


class Restore(pl.Callback):
    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        internals.restore_callback_metrics(trainer, {"val/loss": 2.5})


def test_restored_metrics_survive_training() -> None:
    assert fit(Restore()).callback_metrics["val/loss"] == 2.5, f"callback_metrics is a copy now: {ADVICE}"


class LoaderCalls(pl.Callback):
    """Checks that the trainer hands out our own loader, and records the epochs it sets."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        loader = trainer.train_dataloader
        assert isinstance(loader, StepLoader), f"trainer.train_dataloader is not the loader itself: {ADVICE}"
        self.epochs.append(loader.sampler.epoch)


def test_loader_hooks_are_called(tmp_path: Path) -> None:
    """``sampler.set_epoch`` runs before every epoch, and the loader's own state is in the checkpoint."""
    calls, file = LoaderCalls(), tmp_path / "end.ckpt"
    batches = len(toy_data(train=24, max_tokens=128).train_dataloader())
    fit(calls, SaveAtEpochEnd(file), steps=batches + 2)
    assert calls.epochs == [0, 1], f"set_epoch is not called on loader.sampler: {ADVICE}"
    states = torch.load(file, weights_only=True)["loops"]["fit_loop"]["state_dict"].get("combined_loader")
    assert states == [{"handed_out": 2}], f"the state of the training loader is not saved: {ADVICE}"


def test_launchers_forward_signals() -> None:
    for launcher in (_MultiProcessingLauncher, _SubprocessScriptLauncher):
        assert list(inspect.signature(launcher.kill).parameters) == ["self", "signum"], ADVICE
    strategy = fit(steps=1).strategy
    assert require_attribute(strategy, "launcher") is None  # one process: nothing to forward to
    require_attribute(strategy, "root_device")


def test_data_parallel_size_is_read_in_setup() -> None:
    strategy = ModelParallelStrategy(tensor_parallel_size=1)
    assert require_attribute(strategy, "_data_parallel_size") == "auto"
    source = inspect.getsource(ModelParallelStrategy.setup_environment)
    assert 'self._data_parallel_size == "auto"' in source, f"the data parallel size is set elsewhere: {ADVICE}"
    strategy.parallel_devices = [torch.device("cpu")] * 2
    internals.set_data_parallel_size(strategy)
    assert strategy._data_parallel_size == 2


def test_loss_scaler_and_clipping() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    trainer = pl.Trainer(accelerator="cpu", logger=False, plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    assert internals.get_loss_scale(trainer) == 4.0, f"MixedPrecision.scaler has moved: {ADVICE}"
    trainer = pl.Trainer(accelerator="cpu", logger=False)
    assert internals.get_loss_scale(trainer) is None
    names = list(inspect.signature(Precision.clip_gradients).parameters)
    assert names == ["self", "optimizer", "clip_val", "gradient_clip_algorithm"], ADVICE
    parameter = torch.nn.Parameter(torch.zeros(4))
    parameter.grad = torch.full((4,), 2.0)
    optimizer = torch.optim.AdamW([parameter], fused=True)
    internals.clip_gradients(trainer, optimizer, 1.0, "norm")
    torch.testing.assert_close(parameter.grad, torch.full((4,), 0.5))
    internals.clip_gradients(trainer, optimizer, 0.25, "value")
    torch.testing.assert_close(parameter.grad, torch.full((4,), 0.25))


@pytest.mark.filterwarnings("ignore:.*Experiment logs directory.*")
def test_csv_rows_are_exported_and_restored(tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path), name="", version="")
    for name in ("metrics", "metrics_file_path"):
        require_attribute(logger.experiment, name)
    logger.log_metrics({"loss": 2.0}, step=1)
    rows = logger.export_rows()
    assert rows.splitlines() == ["loss,step", "2.0,1"], ADVICE
    resumed = CSVLogger(str(tmp_path), name="", version="")
    assert resumed.export_rows() == "", f"Lightning keeps the rows of an existing file now: {ADVICE}"
    resumed.restore_rows(rows)
    resumed.log_metrics({"loss": 1.0}, step=2)
    assert resumed.export_rows().splitlines() == ["loss,step", "2.0,1", "1.0,2"], ADVICE


def test_clusters_are_detected_by_classes_of_pytorch_lightning() -> None:
    """So that lightning_fabric need not be imported."""
    assert not SLURMEnvironment.detect()
    assert not TorchElasticEnvironment.detect()
