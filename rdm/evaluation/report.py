"""Tables and a figure from result rows."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from rdm.evaluation.results import Row, read

Key = tuple[str, str]  # system, decoding
Steps = int | None  # iterations; None for as many as there are tokens

# What tells two evaluations apart beside system, strategy and iterations; only seeds are averaged over.
SETTINGS = (
    "run", "checkpoint_step", "average", "transition", "schedule", "proposal", "lengths", "candidates",
    "length_penalty", "data", "text", "split", "sentences", "metric", "signature",
)  # fmt: skip


def by_setting(rows: Sequence[Row]) -> dict[Key, dict[Steps, list[Row]]]:
    """Rows by system and decoding, then by number of iterations; of a repeated evaluation the last counts.

    A setting in which rows of one strategy differ becomes part of the name of the decoding.
    """
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["system"], row["strategy"]), []).append(row)
    table: dict[Key, dict[Steps, dict[int, Row]]] = {}
    for (system, strategy), group in sorted(groups.items()):
        varied = [name for name in SETTINGS if len({str(row.get(name)) for row in group}) > 1]
        for row in group:
            decoding = ", ".join([strategy, *(f"{name} {row.get(name)}" for name in varied)])
            table.setdefault((system, decoding), {}).setdefault(row["steps"], {})[row["seed"]] = row
    return {key: {steps: list(seeds.values()) for steps, seeds in columns.items()} for key, columns in table.items()}


def in_order(steps: Iterable[Steps]) -> list[Steps]:
    """Few iterations first, as many as tokens last."""
    return sorted(steps, key=lambda step: (step is None, step))


def heading(steps: Steps) -> str:
    """The iterations in words."""
    return "token by token" if steps is None else f"{steps} iterations"


def spread(values: Sequence[float]) -> str:
    """The mean, with the standard deviation where there are several values."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and body of the table BLEU by iterations; a row per system and strategy."""
    settings = by_setting(rows)
    steps = in_order({step for columns in settings.values() for step in columns})
    body = [
        [*key, *(spread([row["value"] for row in columns[step]]) if step in columns else "" for step in steps)]
        for key, columns in settings.items()
    ]
    return ["system", "decoding", *map(heading, steps)], body


def caption(rows: Sequence[Row]) -> str:
    """How the numbers were obtained."""
    signatures = sorted({f"{row['metric']} {row['signature']}" for row in rows})
    sentences = sorted({row["sentences"] for row in rows})
    return f"{'; '.join(signatures)}; sentences: {', '.join(map(str, sentences))}"


def print_table(rows: Sequence[Row]) -> None:
    """The table, on the terminal."""
    header, body = cells(rows)
    table = Table(caption=caption(rows))
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number >= 2 else "left")
    for line in body:
        table.add_row(*line)
    Console().print(table)


def markdown(rows: Sequence[Row]) -> str:
    """The table, as Markdown, with speeds and how it was obtained below."""
    header, body = cells(rows)
    lines = [header, ["---"] * len(header), *body]
    text = ["| " + " | ".join(line) + " |" for line in lines]
    speeds = [
        f"- {system}, {strategy}, {heading(steps)}: "
        f"{spread([row['sentences_per_second'] for row in group])} sentences/s"
        for (system, strategy), columns in by_setting(rows).items()
        for steps, group in ((step, columns[step]) for step in in_order(columns))
    ]
    return "\n".join(["# BLEU by iterations", "", *text, "", caption(rows), "", "## Decoding speed", "", *speeds, ""])


def figure(rows: Sequence[Row], file: Path) -> None:
    """BLEU against iterations, a line per system and strategy; level where iterations cannot be chosen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(figsize=(6, 4))
    for (system, strategy), columns in by_setting(rows).items():
        values = {step: mean(row["value"] for row in group) for step, group in columns.items()}
        label, steps = f"{system}, {strategy}", sorted(step for step in values if step is not None)
        if steps:
            axes.plot(steps, [values[step] for step in steps], "o-", label=label)
        else:
            axes.axhline(values[None], linestyle="--", color="gray", label=label)
    axes.set(xlabel="iterations", ylabel="BLEU")
    axes.grid(alpha=0.3)
    axes.legend()
    canvas.tight_layout()
    canvas.savefig(file, dpi=150)
    pyplot.close(canvas)


def write_report(rows: Sequence[Row], folder: Path) -> list[Path]:
    """``report.md`` and ``bleu.png``, written into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    page, picture = folder / "report.md", folder / "bleu.png"
    figure(rows, picture)
    page.write_text(markdown(rows) + "\n![BLEU against iterations](bleu.png)\n", encoding="utf-8")
    return [page, picture]


class PrintTableAfterSweep(Callback):
    """Prints one table over everything a multirun of evaluate.py has added to."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if isinstance(job_return._return_value, str):
            self.files[job_return._return_value] = None

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        if self.files:
            print_table(read(self.files))
