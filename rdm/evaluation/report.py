"""The report: tables and figures from result rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rdm.evaluation.figures import draw
from rdm.evaluation.results import Row
from rdm.evaluation.tables import by_data, caption, cells, latex, markdown, metrics_of, overview, timed, trainings


def print_table(rows: Sequence[Row], metric: str | None = None) -> None:
    """The table of one metric, by default the first, on the terminal; one for each data set."""
    for group in by_data(rows).values():
        name = metrics_of(group, metric)[0]
        header, body = cells(group, name)
        table = Table(title=name, caption=caption(group, name))
        for column in header:
            table.add_column(column, justify="right" if column.endswith("iterations") else "left")
        for line in body:
            table.add_row(*line)
        Console().print(table)


def section(rows: Sequence[Row], metric: str) -> str:
    return f"{markdown(*cells(rows, metric))}\n\n{caption(rows, metric)}\n"


def speeds(rows: Sequence[Row]) -> Iterator[str]:
    """How fast sentences were decoded, and the seconds for all of them where the paper gives its own."""
    times = timed(rows)
    yield section(times, "sentences_per_second")
    if any(name.startswith("paper") for name in cells(times, "seconds")[0]):
        yield section(times, "seconds")


def write_report(rows: Sequence[Row], folder: Path, metric: str | None = None) -> list[Path]:
    """``report.md``, ``report.tex`` and the figures, into ``folder``; ``metric`` (the first) leads and is drawn.

    Where there are several data sets, each has tables and figures of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    groups = by_data(rows)
    page, tables, figures = ["# Results"], [], []
    for data, group in groups.items():
        metrics = metrics_of(group, metric)
        several = len(groups) > 1
        title, suffix = (f"{data}: ", f"_{data}") if several else ("", "")
        drawn = draw(group, metrics[0], folder, suffix)
        if len(metrics) > 1:
            side_by_side = overview(group, metrics)
            page.append(f"## {title}all metrics\n\n{markdown(*side_by_side)}")
            tables.append(latex(*side_by_side, notes=caption(group, *metrics)))
        page += [f"## {title}{name}\n\n{section(group, name)}" for name in metrics]
        page += [f"![{title}{metrics[0]}, {file.stem}]({file.name})" for file in drawn if file.suffix == ".png"]
        page += [f"## {title}decoding speed", *speeds(group)]
        tables += [latex(*cells(group, name), notes=caption(group, name)) for name in metrics]
        figures += drawn
    header, runs = trainings(rows)
    if runs:
        page += ["## Training", markdown(header, runs)]
    if (folder / "decoding.html").is_file():
        page.append("[How sentences were decoded, iteration by iteration](decoding.html)")
    texts = {
        "report.md": "\n\n".join(page) + "\n",
        "report.tex": "% needs \\usepackage{booktabs}\n" + "\n".join(tables),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [*(folder / name for name in texts), *figures]
