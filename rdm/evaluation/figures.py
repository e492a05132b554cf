"""Figures from result rows; files are reproducible to the byte."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rdm.evaluation.grouping import group_rows
from rdm.evaluation.results import Row
from rdm.evaluation.tables import metric_values, sort_steps, steps_heading

MAX_LEGEND_INSIDE = 6  # a longer legend would cover the lines and is placed beside the axes
Series = dict[str, dict[int | None, list[Row]]]  # rows by label, then by number of iterations


def draw_figures(rows: Sequence[Row], metric: str, folder: Path, suffix: str = "") -> list[Path]:
    """Draw a metric against iterations, against speed, as bars, and against counted calls; each as PNG and SVG.

    Args:
        suffix: appended to the names of the files, before the extension.
    """
    series = series_of(rows, metric)
    plots = {"iterations": plot_iterations, "speed": plot_speed, "ablation": plot_bars}
    if any("calls_per_sentence" in row for row in rows):
        plots["calls"] = plot_calls
    return [
        file
        for name, plot in plots.items()
        for file in draw_figure(partial(plot, series=series, metric=metric), folder / f"{name}{suffix}", metric)
    ]


def draw_iterations(rows: Sequence[Row], metric: str, folder: Path, suffix: str = "") -> list[Path]:
    """Draw a metric against iterations, as PNG and SVG; nothing if all rows have the same number of iterations."""
    series = series_of(rows, metric)
    if len({step for groups in series.values() for step in groups if step is not None}) < 2:
        return []
    return draw_figure(partial(plot_iterations, series=series, metric=metric), folder / f"iterations{suffix}", metric)


def series_of(rows: Sequence[Row], metric: str) -> Series:
    """The rows that have a value of the metric, by the label of their line and the number of iterations."""
    series: Series = {}
    for line, columns in group_rows(rows, metric).items():
        groups = {step: columns[step] for step in sort_steps(columns) if metric_values(columns[step], metric)}
        if groups:
            series[", ".join(filter(None, line))] = groups
    return series


def draw_figure(plot: Callable[[Any], None], file: Path, ylabel: str) -> list[Path]:
    """Draw one figure and write it as PNG and SVG.

    Args:
        plot: draws on the axes it is given.
        file: path of the files without extension.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    safe = matplotlib.color_sequences["petroff10"]  # ten colours chosen for colour vision deficiencies
    twenty = pyplot.cycler(color=[*safe, *matplotlib.color_sequences["tab20"][1::2]])  # then ten pale ones
    files = []
    # SVG ids are random without a salt, and files carry date and software version unless disabled below.
    with pyplot.rc_context({"svg.hashsalt": "rdm", "axes.prop_cycle": twenty}):
        canvas, axes = pyplot.subplots(figsize=(6, 4))
        plot(axes)
        axes.set(ylabel=ylabel)
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        widen_single_values(axes)
        if entries := len(axes.get_legend_handles_labels()[1]):
            outside = entries > MAX_LEGEND_INSIDE
            anchor = (1, 1) if outside else None
            axes.legend(fontsize="small", loc="upper left" if outside else "best", bbox_to_anchor=anchor)
        for kind, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
            files.append(file.with_name(file.name + kind))
            canvas.savefig(files[-1], dpi=150, metadata=metadata, bbox_inches="tight")
        pyplot.close(canvas)
    return files


def widen_single_values(axes: Any) -> None:
    """Give an axis on which all points have one value readable limits with that value in the middle.

    Matplotlib's own limits are the value ± 5%, with ticks such as 9.6 iterations.
    """
    lines = [line for line in axes.lines if line.get_transform() == axes.transData]  # not those across the axes
    for values, axis, limits in (
        ({x for line in lines for x in line.get_xdata()}, axes.xaxis, axes.set_xlim),
        ({y for line in axes.lines for y in line.get_ydata()}, axes.yaxis, axes.set_ylim),
    ):
        if len(values) != 1:
            continue
        (value,) = values
        if axis.get_scale() == "log":
            limits(value / 10, value * 10)
        else:
            limits(*sorted((0, 2 * value)) if value else (-1, 1))


def plot_iterations(axes: Any, series: Series, metric: str) -> None:
    """Plot lines over iterations; decodings without iterations are horizontal lines."""
    for number, (label, groups) in enumerate(series.items()):
        means = {step: mean(metric_values(group, metric)) for step, group in groups.items()}
        steps = [step for step in means if step is not None]
        color = f"C{number}"  # axhline does not advance the colour cycle
        if steps:
            axes.plot(steps, [means[step] for step in steps], "o-", color=color, label=label)
        if None in means:
            axes.axhline(means[None], linestyle="--", color=color, label=label)
    axes.set(xlabel="iterations")
    axes.locator_params(axis="x", integer=True)


def plot_speed(axes: Any, series: Series, metric: str) -> None:
    """Plot lines over sentences per second; each point is annotated with its number of iterations."""
    for label, groups in series.items():
        speeds = [mean(row["sentences_per_second"] for row in group) for group in groups.values()]
        values = [mean(metric_values(group, metric)) for group in groups.values()]
        axes.plot(speeds, values, "o-", label=label)
        for step, point in zip(groups, zip(speeds, values, strict=True), strict=True):
            name = "" if step is None else str(step)
            axes.annotate(name, point, textcoords="offset points", xytext=(4, 4), fontsize=8)
    axes.set(xlabel="sentences/s", xscale="log")


def plot_calls(axes: Any, series: Series, metric: str) -> None:
    """Plot lines over network calls per sentence; rows that do not count them are left out."""
    for label, groups in series.items():
        counted = [[row for row in group if "calls_per_sentence" in row] for group in groups.values()]
        points = sorted(
            (mean(row["calls_per_sentence"] for row in group), mean(metric_values(group, metric)))
            for group in counted
            if group
        )
        if points:
            axes.plot(*zip(*points, strict=True), "o-", label=label)
    axes.set(xlabel="network calls per sentence")


def plot_bars(axes: Any, series: Series, metric: str) -> None:
    """Plot bars side by side for each number of iterations, with the standard deviation over seeds."""
    steps = sort_steps(step for groups in series.values() for step in groups)
    width = 0.8 / max(len(series), 1)
    for number, (label, groups) in enumerate(series.items()):
        values = [metric_values(group, metric) for group in groups.values()]
        left = [steps.index(step) + (number - len(series) / 2) * width for step in groups]
        deviations = [stdev(each) if len(each) > 1 else 0.0 for each in values]
        axes.bar(left, [mean(each) for each in values], width, align="edge", yerr=deviations, label=label)
    axes.set_xticks(range(len(steps)), [steps_heading(step) for step in steps])
    axes.margins(y=0.25)  # room for the legend above the bars
    if len(steps) == len(series) == 1:
        axes.set_xlim(-1, 1)  # a single bar would fill the figure
