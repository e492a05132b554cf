"""Figures from result rows, the same to the byte whenever they are drawn."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rdm.evaluation.results import Row
from rdm.evaluation.tables import by_setting, heading, in_order, measured

INSIDE = 6  # a longer legend would cover the lines, and stands beside them
Series = dict[str, dict[int | None, list[Row]]]  # rows by label, then by number of iterations


def draw(rows: Sequence[Row], metric: str, folder: Path, suffix: str = "") -> list[Path]:
    """The metric against iterations, against sentences a second, and as bars, each as PNG and SVG.

    ``suffix`` is what the names of the files end with.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shades = matplotlib.colormaps["tab20"].colors  # type: ignore[attr-defined]
    twenty = pyplot.cycler(color=[*shades[::2], *shades[1::2]])  # the usual ten, then a paler one of each
    series: Series = {}
    for (system, decoding), columns in by_setting(rows, metric).items():
        groups = {step: columns[step] for step in in_order(columns) if measured(columns[step], metric)}
        if groups:
            series[f"{system}, {decoding}"] = groups
    files = []
    # Ids in an SVG are random unless salted, and files carry their date and maker unless told not to.
    with pyplot.rc_context({"svg.hashsalt": "rdm", "axes.prop_cycle": twenty}):
        for name, paint in (("iterations", against_iterations), ("speed", against_speed), ("ablation", bars)):
            canvas, axes = pyplot.subplots(figsize=(6, 4))
            paint(axes, series, metric)
            axes.set(ylabel=metric)
            axes.grid(alpha=0.3)
            axes.set_axisbelow(True)
            if series:
                aside = len(series) > INSIDE
                place = (1, 1) if aside else None
                axes.legend(fontsize="small", loc="upper left" if aside else "best", bbox_to_anchor=place)
            for kind, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
                files.append(folder / f"{name}{suffix}{kind}")
                canvas.savefig(files[-1], dpi=150, metadata=metadata, bbox_inches="tight")
            pyplot.close(canvas)
    return files


def against_iterations(axes: Any, series: Series, metric: str) -> None:
    """A line over iterations; what has none is a level line."""
    for number, (label, groups) in enumerate(series.items()):
        means = {step: mean(measured(group, metric)) for step, group in groups.items()}
        steps = [step for step in means if step is not None]
        color = f"C{number}"  # a level line would always take the first one
        if steps:
            axes.plot(steps, [means[step] for step in steps], "o-", color=color, label=label)
        if None in means:
            axes.axhline(means[None], linestyle="--", color=color, label=label)
    axes.set(xlabel="iterations")


def against_speed(axes: Any, series: Series, metric: str) -> None:
    """A line over sentences a second, each point with its number of iterations."""
    for label, groups in series.items():
        speeds = [mean(row["sentences_per_second"] for row in group) for group in groups.values()]
        values = [mean(measured(group, metric)) for group in groups.values()]
        axes.plot(speeds, values, "o-", label=label)
        for step, place in zip(groups, zip(speeds, values, strict=True), strict=True):
            name = "" if step is None else str(step)
            axes.annotate(name, place, textcoords="offset points", xytext=(4, 4), fontsize=8)
    axes.set(xlabel="sentences/s", xscale="log")


def bars(axes: Any, series: Series, metric: str) -> None:
    """Bars side by side for each number of iterations, with the standard deviation over seeds."""
    steps = in_order(step for groups in series.values() for step in groups)
    width = 0.8 / max(len(series), 1)
    for number, (label, groups) in enumerate(series.items()):
        values = [measured(group, metric) for group in groups.values()]
        left = [steps.index(step) + (number - len(series) / 2) * width for step in groups]
        deviations = [stdev(each) if len(each) > 1 else 0.0 for each in values]
        axes.bar(left, [mean(each) for each in values], width, align="edge", yerr=deviations, label=label)
    axes.set_xticks(range(len(steps)), [heading(step) for step in steps])
