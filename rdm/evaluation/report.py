"""The report: tables and figures from result rows, and the learning curves of training runs."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rdm.evaluation.curves import TrainingRun, draw_curves, final_values_table
from rdm.evaluation.figures import draw_figures
from rdm.evaluation.grouping import group_by_data
from rdm.evaluation.markup import is_number, latex
from rdm.evaluation.report_page import Section, render_html, render_markdown
from rdm.evaluation.results import Row
from rdm.evaluation.tables import caption, iterations_table, metrics_of, metrics_table, speed_rows, training_table


def print_table(rows: Sequence[Row], metric: str | None = None) -> None:
    """Print a table of ``metric`` (default: the first one) for each data set."""
    for group in group_by_data(rows).values():
        name = metrics_of(group, metric)[0]
        print_cells(*iterations_table(group, name), title=name, notes=caption(group, name))


def print_cells(header: Sequence[str], body: Sequence[Sequence[str]], title: str = "", notes: str = "") -> None:
    """Print a table; columns of numbers are aligned to the right."""
    table = Table(title=title or None, caption=notes or None)
    for number, column in enumerate(header):
        table.add_column(column, justify="right" if is_number(body, number) else "left")
    for line in body:
        table.add_row(*line)
    Console().print(table)


def metric_section(title: str, rows: Sequence[Row], metric: str) -> Section:
    """The table of a metric with its caption."""
    return Section(f"{title}{metric}", [(iterations_table(rows, metric), caption(rows, metric))])


def speed_section(title: str, rows: Sequence[Row]) -> Section:
    """Tables of decoding speed: sentences per second, and total seconds if the paper has numbers to compare with."""
    times, shown = speed_rows(rows), ["sentences_per_second"]
    if any(name.startswith("paper") for name in iterations_table(times, "seconds")[0]):
        shown.append("seconds")
    tables = [(iterations_table(times, name), caption(times, name)) for name in shown]
    return Section(f"{title}decoding speed", tables)


def file_name(title: str) -> str:
    """``title`` with everything but letters, digits and underscores replaced."""
    return re.sub(r"\W+", "_", title).strip("_")


def write_report(
    rows: Sequence[Row], folder: Path, metric: str | None = None, runs: Sequence[TrainingRun] = ()
) -> list[Path]:
    """Write ``report.md``, ``report.tex`` (if there are result rows), ``report.html`` and the figures.

    Each data set and split has its own tables and figures.

    Args:
        metric: comes first and is drawn; default: the first one of the rows.
        runs: training runs whose learning curves are drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    groups = group_by_data(rows)
    sections: list[Section] = []
    tables, figures = [], []
    for data, group in groups.items():
        metrics = metrics_of(group, metric)
        title, suffix = (f"{data}: ", f"_{file_name(data)}") if len(groups) > 1 else ("", "")
        drawn = draw_figures(group, metrics[0], folder, suffix)
        first, *others = (metric_section(title, group, name) for name in metrics)
        sections.append(replace(first, figures=drawn, figure_title=f"{title}{metrics[0]}, "))
        if len(metrics) > 1:
            cells = metrics_table(group, metrics)
            sections.append(Section(f"{title}all metrics", [(cells, "")]))
            tables.append(latex(*cells, notes=caption(group, *metrics)))
        sections += [*others, speed_section(title, group)]
        tables += [latex(*iterations_table(group, name), notes=caption(group, name)) for name in metrics]
        figures += drawn
    training = training_table(rows)
    if training[1]:
        sections.append(Section("Training", [(training, "")]))
    if runs:
        drawn = draw_curves(runs, folder)
        sections.append(Section("Learning curves", [(final_values_table(runs), "")], drawn))
        figures += drawn
    texts = {"report.md": render_markdown(sections, folder)}
    if rows:
        texts["report.tex"] = "% needs \\usepackage{booktabs}\n" + "\n".join(tables)
    texts["report.html"] = render_html(sections, folder)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [*(folder / name for name in texts), *figures]
