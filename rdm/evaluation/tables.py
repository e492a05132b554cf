"""Tables from result rows: which rows belong together, and the cells, as Markdown and as LaTeX."""

import itertools
from collections.abc import Iterable, Sequence
from math import inf, nan
from statistics import mean, stdev
from typing import Any

from rdm.errors import require
from rdm.evaluation.published import published_value
from rdm.evaluation.results import Row

Key = tuple[str, str]  # system, decoding

# What tells two evaluations apart beside system, strategy and iterations; only seeds are averaged over.
SETTINGS = (
    "data", "run", "checkpoint_step", "average", "transition", "schedule", "proposal", "lengths", "length_candidates",
    "candidates", "selection", "pruning", "length_penalty", "most_tokens", "int8", "text", "split", "sentences",
    "batch_size", "signature", "decoding",
)  # fmt: skip


NEEDED = (
    "system", "strategy", "metrics", "recipe", "run", "train_seed", "seed", "split", "sentences",
    "sentences_per_second",
)  # fmt: skip


def check_rows(rows: Iterable[Row]) -> None:
    """Refuse rows that were not written by evaluate.py."""
    for number, row in enumerate(rows, 1):
        missing = [name for name in NEEDED if name not in row]
        require(not missing, f"result row {number} is not one of evaluate.py: it has no {', '.join(missing)}")
        metrics = row["metrics"]
        fits = isinstance(metrics, dict) and all(isinstance(metric, dict) for metric in metrics.values())
        require(fits, f"result row {number}: metrics must be names with a value and a signature each")


def metrics_of(rows: Iterable[Row], first: str | None = None) -> list[str]:
    """The metrics of ``rows`` in the order they come; ``first``, or else the first that has a value, leads."""
    names = list(dict.fromkeys(name for row in rows for name in row["metrics"]))
    measured = [name for name in names if any(value(row, name) is not None for row in rows)]
    return sorted(names, key=lambda name: name != (first or next(iter(measured), None)))


def value(row: Row, metric: str) -> float | None:
    """The value of a metric, None if it was skipped or not asked for."""
    return row["metrics"].get(metric, {}).get("value")


def main_value(row: Row) -> float:
    """The first metric that has a value, not a number if none has: what a search for the best decoding looks at."""
    return next((found for name in row["metrics"] if (found := value(row, name)) is not None), nan)


def timed(rows: Iterable[Row]) -> list[Row]:
    """The rows with how fast they were decoded as their metrics."""
    found = []
    for row in rows:
        rate, how = row["sentences_per_second"], f"batch_size:{row.get('batch_size')}|{row.get('machine')}"
        times = {"sentences_per_second": rate, "seconds": row["sentences"] / rate if rate else inf}
        found.append({**row, "metrics": {name: {"value": time, "signature": how} for name, time in times.items()}})
    return found


def by_data(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each data set; numbers of different ones belong in different tables."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row.get("data")), []).append(row)
    return dict(sorted(groups.items()))


def by_setting(rows: Sequence[Row], metric: str) -> dict[Key, dict[int | None, list[Row]]]:
    """Rows by system and decoding, then by number of iterations; of a repeated evaluation the last counts.

    Runs of one recipe differ in the seed alone and count as one. A setting in which rows of one strategy differ becomes
    part of the name of the decoding; runs of several recipes are named by the words that were chosen for them, where
    that tells them apart.
    """
    runs: dict[str, str] = {}
    groups: dict[Key, list[tuple[Row, dict[str, Any]]]] = {}
    for row in (row for row in rows if metric in row["metrics"]):
        run = runs.setdefault(row["recipe"], row["run"])
        settings = {**row.get("choices", {}), **row, "run": run, "signature": row["metrics"][metric].get("signature")}
        groups.setdefault((row["system"], row["strategy"]), []).append((row, settings))
    table: dict[Key, dict[int | None, dict[Any, Row]]] = {}
    for (system, strategy), group in sorted(groups.items()):
        measured = [settings for row, settings in group if value(row, metric) is not None] or [group[0][1]]
        words = sorted({word for settings in measured for word in settings.get("choices", {})} - {*SETTINGS})
        varied = [name for name in (*words, *SETTINGS) if len(distinct(measured, name)) > 1]
        if len(distinct(measured, *words)) == len(distinct(measured, "run", *words)):
            varied = [name for name in varied if name != "run"]
        for row, settings in group:
            decoding = ", ".join([strategy, *(f"{name.split('/')[-1]} {settings.get(name)}" for name in varied)])
            seeds = table.setdefault((system, decoding), {}).setdefault(row.get("steps"), {})
            seed = row["train_seed"], row["seed"]
            if value(row, metric) is not None or seed not in seeds:  # a skipped metric replaces no number
                seeds[seed] = row
    return {key: {steps: list(seeds.values()) for steps, seeds in columns.items()} for key, columns in table.items()}


def distinct(group: Iterable[Row], *names: str) -> set[tuple[str, ...]]:
    """The values that settings of these names have in a group."""
    return {tuple(str(settings.get(name)) for name in names) for settings in group}


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean, with the standard deviation where there are several values."""
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def measured(rows: Sequence[Row], metric: str) -> list[float]:
    """The values there are."""
    return [found for row in rows if (found := value(row, metric)) is not None]


def in_order(steps: Iterable[int | None]) -> list[int | None]:
    """Numbers of iterations, the smallest first; at the end None, for what has no iterations."""
    return sorted(set(steps), key=lambda step: (step is None, step or 0))


def heading(step: int | None) -> str:
    """A number of iterations in words."""
    return "token by token" if step is None else f"{step} iterations"


Cells = tuple[list[str], list[list[str]]]  # header and body of a table


def cells(rows: Sequence[Row], metric: str) -> Cells:
    """A metric by iterations; a line per system and decoding."""
    settings = by_setting(rows, metric)
    header, body = ["system", "decoding"], [list(key) for key in settings]
    for step in in_order(step for columns in settings.values() for step in columns):
        add_columns(header, body, heading(step), [columns.get(step, []) for columns in settings.values()], metric)
    return header, body


def overview(rows: Sequence[Row], metrics: Sequence[str]) -> Cells:
    """All metrics side by side, as the paper has them for QG, QQP and WikiText; a line per number of iterations.

    Lines are those of the first metric.
    """
    settings = by_setting(rows, metrics[0])
    lines = [(key, step) for key, columns in settings.items() for step in in_order(columns)]
    header, body = (
        ["system", "decoding", "iterations"],
        [[*key, "" if step is None else str(step)] for key, step in lines],
    )
    for metric in metrics:
        add_columns(header, body, metric, [settings[key][step] for key, step in lines], metric)
    return header, body


def add_columns(header: list[str], body: list[list[str]], title: str, groups: Sequence[list[Row]], metric: str) -> None:
    """Add what was measured, a cell for each group of seeds, and the paper's numbers in a column of their own.

    A column with nothing in it is left out.
    """
    values = [measured(group, metric) for group in groups]
    digits = 4 if all(abs(number) <= 1 for number in itertools.chain(*values)) else 2
    asked = [any(metric in row["metrics"] for row in group) for group in groups]
    own = [spread(v, digits) if v else ("skipped" if a else "") for v, a in zip(values, asked, strict=True)]
    found = [published_value(group[0], metric) if group else None for group in groups]
    paper = [f"{number.value:.{digits}f}" if number else "" for number in found]
    for name, column in ((title, own), (f"paper, {title}", paper)):
        if any(column):
            header.append(name)
            for line, cell in zip(body, column, strict=True):
                line.append(cell)


def caption(rows: Sequence[Row], *metrics: str) -> str:
    """How the numbers were obtained."""
    entries = [(name, row["metrics"][name]) for name in metrics for row in rows if name in row["metrics"]]
    signatures = sorted({f"{name} {entry['signature']}" for name, entry in entries if entry["value"] is not None})
    skipped = sorted({f"{name} skipped: {entry['skipped']}" for name, entry in entries if entry["value"] is None})
    own = [row for row in rows if any(name in row["metrics"] for name in metrics)]
    sentences = ", ".join(map(str, sorted({row["sentences"] for row in own})))
    notes = [*signatures, *skipped, f"data: {', '.join(by_data(own))}", f"sentences: {sentences}"]
    if any(len(group) > 1 for name in metrics for lines in by_setting(rows, name).values() for group in lines.values()):
        notes.append("± is the standard deviation over seeds")
    tables = {number.table for name in metrics for row in rows if (number := published_value(row, name))}
    if tables:
        notes.append(
            f"columns headed paper are not measured here but printed in the paper ({', '.join(sorted(tables))})"
        )
    return "; ".join(notes)


def markdown(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table, whatever the cells hold."""
    lines = [[" ".join(cell.split()).replace("|", r"\|") for cell in line] for line in (header, *body)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(header), *lines[1:]])


def trainings(rows: Iterable[Row]) -> Cells:
    """What it took to train the models, as far as the rows say."""
    header = ["run", "system", "seed", "parameters", "steps", "target tokens", "minutes", "machine", "overrides"]
    runs: dict[tuple[str, int], list[str]] = {}
    for row in (row for row in rows if "training" in row):
        took = row["training"]
        counts = [f"{took[name]:,}" if name in took else "" for name in ("parameters", "steps", "target_tokens")]
        minutes = f"{took['seconds'] / 60:.1f}" if "seconds" in took else ""
        words = f"`{' '.join(took['overrides'])}`" if took["overrides"] else ""
        said = [row["run"], row["system"], str(row["train_seed"]), *counts, minutes, took.get("machine", ""), words]
        runs[row["run"], took["steps"]] = said
    return header, [runs[key] for key in sorted(runs)]


def latex(header: Sequence[str], body: Iterable[Sequence[str]], notes: str) -> str:
    """The same for a paper, with ``notes`` as its caption; it needs the package booktabs."""
    lines = [" & ".join(map(escape, line)) + r" \\" for line in [header, *body]]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{escape(notes)}}}",
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    """Text that means itself in LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    special |= {"|": r"\textbar{}"} | {character: f"\\{character}" for character in "&%$#_{}"}
    return "".join(special.get(character, character) for character in text)
