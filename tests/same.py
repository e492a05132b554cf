"""Asserts that two runs are bit-identical: weights, optimiser states and logs."""

import csv
from pathlib import Path
from typing import Any

import torch

from rdm.training.checkpoints import load_archive


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


def assert_same_run(first: Path, second: Path) -> None:
    """Compare weights, EMA weights, optimiser, schedule, counters, logs, samples and checkpoint names."""
    states = [load_archive(folder / "checkpoints" / "last.ckpt") for folder in (first, second)]
    for state in states:
        state.pop("hyper_parameters", None)  # contains the run folder
        assert state["effort"].pop("seconds") > 0
        assert state["effort"]["target_tokens"] == tokens_logged(first)
        # Lightning's validation counters restart in a resumed run; nothing depends on them.
        state["loops"] = {key: value for key, value in state["loops"]["fit_loop"].items() if "val_loop" not in key}
    assert_same(*states)
    for name in ("metrics.csv", *(f"samples/{file.name}" for file in (first / "samples").iterdir())):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    names = [sorted(file.name for file in (folder / "checkpoints").iterdir()) for folder in (first, second)]
    assert names[0] == names[1], names


def tokens_logged(folder: Path) -> int:
    """Target tokens of all logged steps."""
    with (folder / "metrics.csv").open(newline="") as stream:
        counts = [row["train/target_tokens"] for row in csv.DictReader(stream)]
    return sum(int(float(count)) for count in counts if count)
