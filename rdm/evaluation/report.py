"""The report: tables and figures from result rows, and the learning curves of training runs."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rdm.evaluation.curves import TrainingRun, draw_curves, final_values_table
from rdm.evaluation.figures import draw_figures
from rdm.evaluation.grouping import group_by_data
from rdm.evaluation.markup import latex, markdown
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
        cells = [line[number] for line in body]
        table.add_column(
            column, justify="right" if all(not cell or cell[0] in "-0123456789" for cell in cells) else "left"
        )
    for line in body:
        table.add_row(*line)
    Console().print(table)


def table_section(rows: Sequence[Row], metric: str) -> str:
    """The Markdown table of a metric with its caption."""
    return f"{markdown(*iterations_table(rows, metric))}\n\n{caption(rows, metric)}\n"


def speed_sections(rows: Sequence[Row]) -> Iterator[str]:
    """Tables of decoding speed: sentences per second, and total seconds if the paper has numbers to compare with."""
    times = speed_rows(rows)
    yield table_section(times, "sentences_per_second")
    if any(name.startswith("paper") for name in iterations_table(times, "seconds")[0]):
        yield table_section(times, "seconds")


def file_name(title: str) -> str:
    """``title`` with everything but letters, digits and underscores replaced."""
    return re.sub(r"\W+", "_", title).strip("_")


def write_report(
    rows: Sequence[Row], folder: Path, metric: str | None = None, runs: Sequence[TrainingRun] = ()
) -> list[Path]:
    """Write ``report.md``, ``report.tex`` (if there are result rows) and the figures.

    Each data set and split has its own tables and figures.

    Args:
        metric: comes first and is drawn; default: the first one of the rows.
        runs: training runs whose learning curves are drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    groups = group_by_data(rows)
    page, tables, figures = ["# Results"], [], []
    for data, group in groups.items():
        metrics = metrics_of(group, metric)
        title, suffix = (f"{data}: ", f"_{file_name(data)}") if len(groups) > 1 else ("", "")
        drawn = draw_figures(group, metrics[0], folder, suffix)
        if len(metrics) > 1:
            cells = metrics_table(group, metrics)
            page.append(f"## {title}all metrics\n\n{markdown(*cells)}")
            tables.append(latex(*cells, notes=caption(group, *metrics)))
        page += [f"## {title}{name}\n\n{table_section(group, name)}" for name in metrics]
        page += image_links(drawn, f"{title}{metrics[0]}, ")
        page += [f"## {title}decoding speed", *speed_sections(group)]
        tables += [latex(*iterations_table(group, name), notes=caption(group, name)) for name in metrics]
        figures += drawn
    header, lines = training_table(rows)
    if lines:
        page += ["## Training", markdown(header, lines)]
    if runs:
        drawn = draw_curves(runs, folder)
        page += ["## Learning curves", markdown(*final_values_table(runs)), *image_links(drawn)]
        figures += drawn
    if (folder / "decoding.html").is_file():
        page.append("[How sentences were decoded, iteration by iteration](decoding.html)")
    texts = {"report.md": "\n\n".join(page) + "\n"}
    if rows:
        texts["report.tex"] = "% needs \\usepackage{booktabs}\n" + "\n".join(tables)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [*(folder / name for name in texts), *figures]


def image_links(files: Sequence[Path], title: str = "") -> list[str]:
    """Markdown images of the PNG files."""
    return [f"![{title}{file.stem}]({file.name})" for file in files if file.suffix == ".png"]
