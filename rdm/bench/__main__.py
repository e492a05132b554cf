"""``python -m rdm.bench [--quick]``: tables, ``bench.json`` and a picture of how things grow."""

import json
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rdm import cli
from rdm.bench.cases import FULL, QUICK, SECTIONS, Size
from rdm.bench.figure import draw
from rdm.bench.measure import Measurement, gemm_rate
from rdm.evaluation.results import check_writable

NOISY = 0.2


def run(size: Size, only: str | None = None) -> list[Measurement]:
    """All measurements, or those of one section."""
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


def show(results: list[Measurement]) -> None:
    sections: dict[tuple[str, str], list[Measurement]] = {}
    for result in results:
        sections.setdefault((result.section, result.unit), []).append(result)
    for (section, unit), rows in sections.items():
        table = Table(title=section, title_justify="left")
        for column in ("", unit, "per GFLOP/s", "spread", "outside network", "memory"):
            table.add_column(column, justify="left" if column == "" else "right")
        for row in rows:
            table.add_row(
                row.name,
                f"{row.rate:,.2f}",
                f"{row.per_gflops:.4f}",
                f"{row.spread:.0%}",
                "" if row.outside is None else f"{row.outside:.1%}",
                "" if row.memory is None else f"{row.memory:,.0f} MB",
            )
        Console().print(table)


def main() -> None:
    parser = cli.Parser(prog="python -m rdm.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small models, few repetitions: a minute")
    parser.add_argument("--only", choices=[section.__name__ for section in SECTIONS], help="one section")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench"), help="folder for bench.json and the picture")
    arguments = parser.parse_args()
    check_writable(arguments.out / "bench.json")
    size = QUICK if arguments.quick else FULL
    gemm_rate()  # a machine that was idle takes a moment to come up to speed
    before = gemm_rate()
    results = run(size, arguments.only)
    after = gemm_rate()
    show(results)
    rates = f"matrix product {before:.0f} GFLOP/s at first, {after:.0f} at last"
    print(f"model {size.model}, vocabulary {size.vocabulary:,}; {rates}")
    if abs(before - after) > NOISY * max(before, after):
        print("warning: the matrix product changed by more than a fifth: the machine is busy, measure again")
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = {"model": size.model, "vocabulary": size.vocabulary, "gflops_before": before, "gflops_after": after}
    rows = [result.row() for result in results]
    (arguments.out / "bench.json").write_text(json.dumps({**record, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    draw(results, arguments.out / "bench.png")
    print(f"wrote {arguments.out / 'bench.json'} and bench.png")


if __name__ == "__main__":
    cli.run(main)
