"""Two runs are the same: every weight, every row of the log, to the bit."""

import csv
from pathlib import Path
from typing import Any

import torch

from rdm.training.checkpoints import load_archive


def assert_same(first: Any, second: Any, where: str = "") -> None:
    """Of nested plain data."""
    if isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_same(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for number, pair in enumerate(zip(first, second, strict=True)):
            assert_same(*pair, f"{where}[{number}]")
    else:
        assert torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second, where


def assert_same_run(first: Path, second: Path) -> None:
    """Weights, averages, optimiser, schedule, counts, log of every step, and samples; and as many checkpoints."""
    states = [load_archive(folder / "checkpoints" / "last.ckpt") for folder in (first, second)]
    for state in states:
        state.pop("hyper_parameters", None)  # says where the run is
        assert state["effort"].pop("seconds") > 0
        assert state["effort"]["target_tokens"] == tokens_logged(first)
        # What Lightning counts of validation batches starts anew in a resumed run; nothing depends on it.
        state["loops"] = {key: value for key, value in state["loops"]["fit_loop"].items() if "val_loop" not in key}
    assert_same(*states)
    for name in ("metrics.csv", *(f"samples/{file.name}" for file in (first / "samples").iterdir())):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    names = [sorted(file.name for file in (folder / "checkpoints").iterdir()) for folder in (first, second)]
    assert names[0] == names[1], names


def tokens_logged(folder: Path) -> int:
    """The target tokens of all steps of a run."""
    with (folder / "metrics.csv").open(newline="") as stream:
        counts = [row["train/target_tokens"] for row in csv.DictReader(stream)]
    return sum(int(float(count)) for count in counts if count)
