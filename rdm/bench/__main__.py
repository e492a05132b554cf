"""``python -m rdm.bench [--quick]``: measure speed; prints tables, writes ``bench.json`` and a figure."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rdm.app.arguments import Parser
from rdm.app.scripts import run_module
from rdm.bench.around import SECONDS, SHARE
from rdm.bench.cases import FULL, OFFICIAL, QUICK, SECTIONS, Size
from rdm.bench.figure import draw
from rdm.bench.timing import Measurement, find_noisy, gemm_rate
from rdm.evaluation.results import check_writable

FILE_WIDTH = 140  # columns of a table that is redirected to a file


def run(size: Size, only: str | None = None) -> list[Measurement]:
    """Return the measurements of all sections, or of one."""
    results = []
    with Progress(transient=True) as progress:
        for section in SECTIONS:
            if only in (None, section.__name__):
                task = progress.add_task(section.__name__, total=None)
                for result in section(size):
                    results.append(result)
                    progress.update(task, description=f"{section.__name__}: {result.section}, {result.name}")
                progress.remove_task(task)
    return results


def show(results: list[Measurement], official: Mapping[tuple[str, str], float]) -> None:
    """Print a table per section; ``official`` holds rates per GFLOP/s by section and name."""
    console = Console()
    console = console if console.is_terminal else Console(width=FILE_WIDTH)
    sections: dict[tuple[str, str], list[Measurement]] = {}
    for result in results:
        sections.setdefault((result.section, result.unit), []).append(result)
    for (section, unit), rows in sections.items():
        ratios = {row.name: row.per_gflops / rate for row in rows if (rate := official.get((section, row.name)))}
        columns = {
            "": [row.name for row in rows],
            unit: [f"{row.rate:.1%}" if unit == SHARE else f"{row.rate:,.2f}" for row in rows],
            "per GFLOP/s": ["" if unit in (SECONDS, SHARE) else f"{row.per_gflops:.4f}" for row in rows],
            "times official": [f"{ratios[row.name]:.1f}" if row.name in ratios else "" for row in rows],
            "spread": ["" if unit == SHARE else f"{row.spread:.0%}" for row in rows],
            "outside network": ["" if row.outside is None else f"{row.outside:.1%}" for row in rows],
            "memory": ["" if row.memory is None else f"{row.memory:,.0f} MB" for row in rows],
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        table = Table(title=section, title_justify="left")
        for name in columns:
            table.add_column(name, justify="left" if name == "" else "right")
        for line in zip(*columns.values(), strict=True):
            table.add_row(*line)
        console.print(table)


def main() -> None:
    parser = Parser(prog="python -m rdm.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small models, few repetitions; takes a minute")
    parser.add_argument("--only", choices=[section.__name__ for section in SECTIONS], help="run one section only")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench"), help="folder for bench.json and bench.png")
    arguments = parser.parse_args()
    check_writable(arguments.out / "bench.json")
    size = QUICK if arguments.quick else FULL
    gemm_rate()  # warm-up: an idle machine starts slowly
    results = run(size, arguments.only)
    show(results, OFFICIAL if size is FULL else {})
    rates = [rate for result in results for rate in (result.gflops_before, result.gflops_after)]
    product = f"matrix product {min(rates):.0f} to {max(rates):.0f} GFLOP/s, median {median(rates):.0f}"
    print(f"model {size.model}, vocabulary {size.vocabulary:,}; {product}")
    if names := "; ".join(f"{result.section}: {result.name}" for result in find_noisy(results)):
        print(f"warning: the matrix product changed by more than a fifth; repeat these: {names}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = {"model": size.model, "vocabulary": size.vocabulary}
    rows = [result.row() for result in results]
    (arguments.out / "bench.json").write_text(json.dumps({**record, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    draw(results, arguments.out / "bench.png")
    print(f"wrote {arguments.out / 'bench.json'} and bench.png")


if __name__ == "__main__":
    run_module(main)
