"""Figures from result rows, the same to the byte whenever they are drawn."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rdm.evaluation.results import Row
from rdm.evaluation.tables import by_setting, in_order, measured


def draw(rows: Sequence[Row], metric: str, folder: Path) -> list[Path]:
    """``iterations`` (the metric against iterations) and ``speed`` (against sentences a second), as PNG and SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    files = []
    # Ids in an SVG are random unless salted, and files carry their date and maker unless told not to.
    with pyplot.rc_context({"svg.hashsalt": "rdm"}):
        for name, paint in (("iterations", against_iterations), ("speed", against_speed)):
            canvas, axes = pyplot.subplots(figsize=(6, 4))
            for (system, decoding), columns in by_setting(rows, metric).items():
                groups = {step: columns[step] for step in in_order(columns) if measured(columns[step], metric)}
                if groups:
                    paint(axes, groups, metric, f"{system}, {decoding}")
            axes.set(ylabel=metric)
            axes.grid(alpha=0.3)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize="small")
            canvas.tight_layout()
            for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
                files.append(folder / f"{name}{suffix}")
                canvas.savefig(files[-1], dpi=150, metadata=metadata)
            pyplot.close(canvas)
    return files


def against_iterations(axes: Any, groups: dict[int | None, list[Row]], metric: str, label: str) -> None:
    """A line over iterations; what has none is a level line."""
    means = {step: mean(measured(group, metric)) for step, group in groups.items()}
    steps = [step for step in means if step is not None]
    if steps:
        axes.plot(steps, [means[step] for step in steps], "o-", label=label)
    if None in means:
        axes.axhline(means[None], linestyle="--", label=label)
    axes.set(xlabel="iterations")


def against_speed(axes: Any, groups: dict[int | None, list[Row]], metric: str, label: str) -> None:
    """A line over sentences a second, each point with its number of iterations."""
    speeds = [mean(row["sentences_per_second"] for row in group) for group in groups.values()]
    values = [mean(measured(group, metric)) for group in groups.values()]
    axes.plot(speeds, values, "o-", label=label)
    for step, x, y in zip(groups, speeds, values, strict=True):
        axes.annotate("" if step is None else str(step), (x, y), textcoords="offset points", xytext=(4, 4), fontsize=8)
    axes.set(xlabel="sentences/s", xscale="log")
