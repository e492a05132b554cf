"""Header and cells of the report's tables."""

import itertools
from collections.abc import Iterable, Sequence
from math import inf, nan
from statistics import mean, stdev

from rdm.errors import require
from rdm.evaluation.grouping import Line, group_by_data, group_rows
from rdm.evaluation.published import published_value
from rdm.evaluation.results import Row
from rdm.evaluation.settings import metric_value

Cells = tuple[list[str], list[list[str]]]  # header and body of a table

REQUIRED = (
    "system", "strategy", "metrics", "recipe", "run", "train_seed", "seed", "split", "sentences",
    "sentences_per_second",
)  # fmt: skip


def check_rows(rows: Iterable[Row]) -> None:
    """Raise a :class:`~rdm.errors.UserError` for rows that were not written by evaluate.py."""
    for number, row in enumerate(rows, 1):
        missing = [name for name in REQUIRED if name not in row]
        require(not missing, f"result row {number} was not written by evaluate.py: it has no {', '.join(missing)}")
        metrics = row["metrics"]
        valid = isinstance(metrics, dict) and all(isinstance(metric, dict) for metric in metrics.values())
        require(valid, f"result row {number}: metrics must map names to entries with value and signature")


def metrics_of(rows: Sequence[Row], first: str | None = None) -> list[str]:
    """The metrics of ``rows`` in their order, but ``first`` leads; by default the first one that has a value."""
    names = list(dict.fromkeys(name for row in rows for name in row["metrics"]))
    with_value = [name for name in names if metric_values(rows, name)]
    return sorted(names, key=lambda name: name != (first or next(iter(with_value), None)))


def metric_values(rows: Iterable[Row], metric: str) -> list[float]:
    """The values of a metric in the rows that have one."""
    return [value for row in rows if (value := metric_value(row, metric)) is not None]


def main_value(row: Row) -> float:
    """The value an optimising sweeper sees: of the first metric that has one; NaN if none has."""
    return next((value for name in row["metrics"] if (value := metric_value(row, name)) is not None), nan)


def speed_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows with decoding speed instead of their metrics."""
    replaced = []
    for row in rows:
        rate, signature = row["sentences_per_second"], f"batch_size:{row.get('batch_size')}|{row.get('machine')}"
        values = {"sentences_per_second": rate, "seconds": row["sentences"] / rate if rate else inf}
        metrics = {name: {"value": value, "signature": signature} for name, value in values.items()}
        replaced.append({**row, "metrics": metrics})
    return replaced


def mean_with_deviation(values: Sequence[float], digits: int = 2) -> str:
    """The mean, with the standard deviation if there are several values."""
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def sort_steps(steps: Iterable[int | None]) -> list[int | None]:
    """Different numbers of iterations in ascending order; None (decodings without iterations) comes last."""
    return sorted(set(steps), key=lambda step: (step is None, step or 0))


def steps_heading(step: int | None) -> str:
    """The heading of a column."""
    return "token by token" if step is None else f"{step} iterations"


def label_columns(lines: Iterable[Line]) -> Cells:
    """The first columns of a table; ``evaluation`` is left out if all its cells are empty."""
    cells = list(lines)
    count = 3 if any(line.evaluation for line in cells) else 2
    return list(Line._fields[:count]), [list(line[:count]) for line in cells]


def iterations_table(rows: Sequence[Row], metric: str) -> Cells:
    """One metric: a line per system and decoding, a column per number of iterations."""
    groups = group_rows(rows, metric)
    header, body = label_columns(groups)
    for step in sort_steps(step for columns in groups.values() for step in columns):
        add_columns(header, body, steps_heading(step), [columns.get(step, []) for columns in groups.values()], metric)
    return header, body


def metrics_table(rows: Sequence[Row], metrics: Sequence[str]) -> Cells:
    """All metrics side by side: a line per system, decoding and number of iterations.

    This is the paper's layout for QG, QQP and WikiText. Rows without the first metric are left out.
    """
    groups = group_rows(rows, *metrics)
    lines = [(line, step) for line, columns in groups.items() for step in sort_steps(columns)]
    header, body = label_columns(line for line, _ in lines)
    header.append("iterations")
    for cells, (_, step) in zip(body, lines, strict=True):
        cells.append("" if step is None else str(step))
    for metric in metrics:
        add_columns(header, body, metric, [groups[line][step] for line, step in lines], metric)
    return header, body


def add_columns(header: list[str], body: list[list[str]], title: str, groups: Sequence[list[Row]], metric: str) -> None:
    """Add a column with a cell for each group of seeds, and one with the paper's numbers; empty ones are left out."""
    values = [metric_values(group, metric) for group in groups]
    digits = 4 if all(abs(number) <= 1 for number in itertools.chain(*values)) else 2
    requested = [any(metric in row["metrics"] for row in group) for group in groups]
    own = [
        mean_with_deviation(numbers, digits) if numbers else ("skipped" if present else "")
        for numbers, present in zip(values, requested, strict=True)
    ]
    printed = [published_value(group[0], metric) if group else None for group in groups]
    paper = [f"{number.value:.{digits}f}" if number else "" for number in printed]
    for name, column in ((title, own), (f"paper, {title}", paper)):
        if any(column):
            header.append(name)
            for line, cell in zip(body, column, strict=True):
                line.append(cell)


def caption(rows: Sequence[Row], *metrics: str) -> str:
    """How the numbers were obtained: signatures, skipped metrics, data, sentences, seeds, tables of the paper."""
    entries = [(name, row["metrics"][name]) for name in metrics for row in rows if name in row["metrics"]]
    signatures = sorted({f"{name} {entry['signature']}" for name, entry in entries if entry["value"] is not None})
    skipped = sorted({f"{name} skipped: {entry['skipped']}" for name, entry in entries if entry["value"] is None})
    own = [row for row in rows if any(name in row["metrics"] for name in metrics)]
    sentences = ", ".join(map(str, sorted({row["sentences"] for row in own})))
    notes = [*signatures, *skipped, f"data: {', '.join(group_by_data(own))}", f"sentences: {sentences}"]
    cells = [cell for name in metrics for columns in group_rows(rows, name).values() for cell in columns.values()]
    if any(len(cell) > 1 for cell in cells):
        notes.append("± is the standard deviation over seeds")
    tables = {number.table for name in metrics for row in rows if (number := published_value(row, name))}
    if tables:
        notes.append(
            f"columns headed paper are not measured here but printed in the paper ({', '.join(sorted(tables))})"
        )
    return "; ".join(notes)


def training_table(rows: Iterable[Row]) -> Cells:
    """Training cost: a line per run and checkpoint."""
    header = ["run", "system", "seed", "parameters", "steps", "target tokens", "minutes", "machine", "overrides"]
    lines: dict[tuple[str, int], list[str]] = {}
    for row in (row for row in rows if "training" in row):
        cost = row["training"]
        counts = [f"{cost[name]:,}" if name in cost else "" for name in ("parameters", "steps", "target_tokens")]
        minutes = f"{cost['seconds'] / 60:.1f}" if "seconds" in cost else ""
        overrides = f"`{' '.join(cost['overrides'])}`" if cost["overrides"] else ""
        model = [row["run"], row["system"], str(row["train_seed"])]
        lines[row["run"], cost["steps"]] = [*model, *counts, minutes, cost.get("machine", ""), overrides]
    return header, [lines[key] for key in sorted(lines)]
