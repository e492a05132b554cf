"""Asserts that two runs are bit-identical: weights, optimiser states and logs."""

import csv
from pathlib import Path
from typing import Any

import torch

from rdm.training.checkpoints import load_archive

TIMES = ("train/tokens_per_second", "train/seconds_left")


def assert_same(first: Any, second: Any, path: str = "") -> None:
    """Compare nested plain data and tensors; ``path`` is shown if they differ."""
    if isinstance(first, dict):
        assert first.keys() == second.keys(), path
        for key in first:
            assert_same(first[key], second[key], f"{path}.{key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), path
        for number, pair in enumerate(zip(first, second, strict=True)):
            assert_same(*pair, f"{path}[{number}]")
    else:
        assert torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second, path


def assert_same_run(first: Path, second: Path, also_validated_at: int | None = None) -> None:
    """Compare weights, EMA weights, optimiser, schedule, counters, logs, samples and checkpoint names.

    The second run may have been validated at one more step, where it had ended before it was extended.
    """
    states = [load_archive(folder / "checkpoints" / "last.ckpt") for folder in (first, second)]
    for state in states:
        state.pop("hyper_parameters", None)  # contains the run folder
        state.pop("metrics")  # compared below
        state["measured"] = {name: value for name, value in state["measured"].items() if name not in TIMES}
        assert state["effort"].pop("seconds") > 0
        assert state["effort"].pop("cpu_seconds") > 0
        assert state["effort"]["target_tokens"] == tokens_logged(first)
        # Lightning's validation counters restart in a resumed run; nothing depends on them.
        state["loops"] = {key: value for key, value in state["loops"]["fit_loop"].items() if "val_loop" not in key}
    assert_same(*states)
    more = () if also_validated_at is None else (str(also_validated_at - 1),)
    rows = [row for row in logged_rows(second) if not (row["val/loss"] and row["step"] in more)]
    assert_same(logged_rows(first), rows, "metrics.csv")
    for name in (f"samples/{file.name}" for file in (first / "samples").iterdir()):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    names = [sorted(file.name for file in (folder / "checkpoints").iterdir()) for folder in (first, second)]
    assert names[0] == names[1], names


def logged_rows(folder: Path) -> list[dict[str, str]]:
    """Rows of ``metrics.csv`` without the columns that depend on the time."""
    with (folder / "metrics.csv").open(newline="") as stream:
        return [{name: row[name] for name in row if name not in TIMES} for row in csv.DictReader(stream)]


def tokens_logged(folder: Path) -> int:
    """Target tokens of all logged steps."""
    counts = [row["train/target_tokens"] for row in logged_rows(folder)]
    return sum(int(float(count)) for count in counts if count)
