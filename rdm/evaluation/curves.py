"""Learning curves: what training runs logged to ``metrics.csv``, as figures and as a table of final values."""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from rdm.errors import UserError
from rdm.evaluation.figures import draw_figure
from rdm.evaluation.tables import Cells

METRICS_FILE = "metrics.csv"
DRAWN = re.compile(r"train/loss|val/.+|(train/)?lr.*")
"""Metrics that are drawn: loss, everything measured at validation, learning rates."""
FINAL = ("val/loss", "val/nats_per_token", "val/perplexity", "val/bleu")
"""Metrics whose final values are in the table, as far as the runs have them."""

Curve = list[tuple[int, float]]
"""Points of a learning curve: training step and value."""


@dataclass(frozen=True)
class TrainingRun:
    """The learning curves of a run.

    Args:
        label: what distinguishes the run from the others of the report.
        curves: all metrics the run logged, by name.
    """

    label: str
    curves: dict[str, Curve]


def read_curves(file: Path) -> dict[str, Curve]:
    """Read ``metrics.csv``; a metric that the file has no finite value of is left out."""
    curves: dict[str, Curve] = {}
    with file.open(encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.DictReader(stream), 2):
            try:
                for name, text in row.items():
                    if name not in ("step", "epoch") and text and isfinite(value := float(text)):
                        curves.setdefault(name, []).append((int(row["step"]) + 1, value))  # Lightning counts from 0
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{file}, line {number} is not a row of training metrics") from error
    return curves


def drawn_metrics(runs: Iterable[TrainingRun]) -> list[str]:
    """The metrics that are drawn: those of the first run in their order, then those only other runs have."""
    return [name for name in dict.fromkeys(name for run in runs for name in run.curves) if DRAWN.fullmatch(name)]


def draw_curves(runs: Sequence[TrainingRun], folder: Path) -> list[Path]:
    """Draw one figure per metric with one line per run, each as PNG and SVG."""
    files = []
    for name in drawn_metrics(runs):
        file = folder / f"curve_{re.sub(r'[^A-Za-z0-9]+', '_', name)}"
        files += draw_figure(partial(plot_curves, runs=runs, metric=name), file, name)
    return files


def plot_curves(axes: Any, runs: Sequence[TrainingRun], metric: str) -> None:
    """Plot one line per run; a run without the metric keeps its colour for the other figures."""
    for number, run in enumerate(runs):
        if points := run.curves.get(metric):
            marker = "o-" if len(points) == 1 else "-"
            axes.plot(*zip(*points, strict=True), marker, color=f"C{number}", label=run.label)
    axes.set(xlabel="step")


def final_values_table(runs: Sequence[TrainingRun]) -> Cells:
    """One line per run: its last step and the last value of each metric of :data:`FINAL`."""
    names = [name for name in FINAL if any(name in run.curves for run in runs)]
    body = []
    for run in runs:
        steps = [step for points in run.curves.values() for step, _ in points]
        values = [f"{run.curves[name][-1][1]:.4g}" if name in run.curves else "" for name in names]
        body.append([run.label, str(max(steps)) if steps else "", *values])
    return ["run", "step", *names], body
