"""Continuing a run with other settings: each change takes effect or is refused."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from rdm.errors import require
from rdm.training.checkpoints import differences
from rdm.training.optim import LearningRateSchedule, Optimization

COMPARED = (
    "seed",
    "data",
    "model",
    "diffusion",
    "reweighting",
    "system",
    "optimizer",
    "trainer",
    "callbacks",
    "decoding",
)
"""Sections of the configuration whose changes are reported."""
POSITION = ("trainer.accumulate_grad_batches",)
"""Keys that the position of a checkpoint within its epoch depends on."""
STATE_OPTIONS = ("_target_", "amsgrad", "centered")
"""Options of an optimiser that decide which tensors its state has."""
OTHERWISE = "use init=<run> to start a new run from its weights"

Change = tuple[str, Any, Any]
"""Dotted key, the value in the checkpoint, and the value now."""


def changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[Change]:
    """Return the settings that differ between two resolved configurations, except for their run folders.

    A value that several keys refer to is listed once, under the shortest key.
    """
    found = list(_all_changes(saved, current))
    listed: dict[tuple[str, str, str], Change] = {}
    for key, before, now in sorted(found, key=lambda change: change[0].count(".")):
        listed.setdefault((key.rpartition(".")[2], repr(before), repr(now)), (key, before, now))
    return sorted(listed.values())


def _all_changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[Change]:
    for section in COMPARED:
        # The checkpoint of a run that is continued in another folder names the other folder.
        before, now = (_without(config.get(section), str(config.get("run_dir"))) for config in (saved, current))
        yield from differences(before, now, section)


def _without(node: Any, folder: str) -> Any:
    """Return ``node`` with a run folder replaced by a placeholder in all values."""
    if isinstance(node, Mapping):
        return {key: _without(value, folder) for key, value in node.items()}
    return node.replace(folder, "<run>") if isinstance(node, str) else node


def check_changes(found: list[Change], state: Mapping[str, Any], optimization: Optimization) -> None:
    """Raise a :class:`~rdm.errors.UserError` for a change that would have no effect on a continued run.

    Args:
        found: see :func:`changes`.
        state: the checkpoint.
        optimization: the optimiser of the continued run.
    """
    for key, before, now in found:
        message = f"{key}={now} cannot be changed from {before} when a run is continued; {OTHERWISE}"
        section, _, name = key.rpartition(".")
        require(key not in POSITION, message)
        if key.startswith("optimizer."):
            is_schedule = section.startswith("optimizer.schedule")
            require(is_schedule or name not in STATE_OPTIONS, message)
            require(is_schedule or ".parameters" not in section, message)
            # Other schedulers of torch keep their options and learning rates in the checkpoint.
            closed_form = optimization.schedule is None or isinstance(optimization.schedule, LearningRateSchedule)
            require(closed_form and all("lr_lambdas" in each for each in state["lr_schedulers"]), message)


def get_options(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the options of every parameter group of an optimiser that has just been built."""
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def apply_options(options: list[dict[str, Any]], optimizer: Optimizer, schedule: LRScheduler) -> None:
    """Replace the options that were loaded from a checkpoint by the configured ones.

    The learning rate becomes that of the configured schedule at this step. If nothing was changed, nothing changes.
    Schedulers other than :class:`LambdaLR` are left alone; :func:`check_changes` refuses changes for them.
    """
    if not isinstance(schedule, LambdaLR):
        return
    schedule.base_lrs = [chosen["initial_lr"] for chosen in options]
    for group, chosen, factor in zip(optimizer.param_groups, options, schedule.lr_lambdas, strict=True):
        group.update({**chosen, "lr": chosen["initial_lr"] * factor(schedule.last_epoch)})
    schedule._last_lr = [group["lr"] for group in optimizer.param_groups]
