"""The report: tables and figures from result rows."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rdm.evaluation.figures import draw
from rdm.evaluation.results import Row
from rdm.evaluation.tables import (
    by_setting,
    caption,
    cells,
    heading,
    in_order,
    latex,
    markdown,
    metrics_of,
    spread,
    trainings,
)


def print_table(rows: Sequence[Row], metric: str | None = None) -> None:
    """The table of one metric, by default the first, on the terminal."""
    metric = metrics_of(rows, metric)[0]
    header, body = cells(rows, metric)
    table = Table(title=metric, caption=caption(rows, metric))
    for name in header:
        table.add_column(name, justify="right" if name.endswith("iterations") else "left")
    for line in body:
        table.add_row(*line)
    Console().print(table)


def speeds(rows: Sequence[Row], metric: str) -> list[str]:
    """A line per system, decoding and number of iterations."""
    return [
        f"- {system}, {decoding}, {heading(step)}: {spread([row['sentences_per_second'] for row in columns[step]])} "
        "sentences/s"
        for (system, decoding), columns in by_setting(rows, metric).items()
        for step in in_order(columns)
    ]


def write_report(rows: Sequence[Row], folder: Path, metric: str | None = None) -> list[Path]:
    """``report.md``, ``report.tex`` and the figures, into ``folder``; ``metric`` (the first) leads and is drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics = metrics_of(rows, metric)
    figures = draw(rows, metrics[0], folder)
    pictures = [f"![{metrics[0]}, {file.stem}]({file.name})" for file in figures if file.suffix == ".png"]
    sections = [f"## {name}\n\n{markdown(*cells(rows, name))}\n\n{caption(rows, name)}\n" for name in metrics]
    page = ["# Results", *sections, *pictures, "## Decoding speed", "\n".join(speeds(rows, metrics[0]))]
    header, runs = trainings(rows)
    if runs:
        page += ["## Training", markdown(header, runs)]
    if (folder / "decoding.html").is_file():
        page.append("[How sentences were decoded, iteration by iteration](decoding.html)")
    texts = {
        "report.md": "\n\n".join(page) + "\n",
        "report.tex": "% needs \\usepackage{booktabs}\n" + "\n".join(latex(rows, name) for name in metrics),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [*(folder / name for name in texts), *figures]
