"""``python -m rdm.report PATH...``: tables and figures from the results of runs and sweeps."""

from pathlib import Path

from rdm.app.arguments import Parser
from rdm.app.scripts import run_module
from rdm.errors import require
from rdm.evaluation.report import print_table, write_report
from rdm.evaluation.results import check_writable, read_results
from rdm.evaluation.tables import check_rows, metrics_of


def main() -> None:
    """Print the table of one metric and write the report."""
    parser = Parser(prog="python -m rdm.report", description=__doc__)
    parser.add_argument("paths", nargs="+", help="run folders, sweep folders or results files")
    parser.add_argument("--out", type=Path, help="folder of the report (default: the first path, if it is a folder)")
    parser.add_argument("--metric", help="metric to print and draw (default: the first one of the results)")
    arguments = parser.parse_args()
    rows = read_results(arguments.paths)
    require(len(rows) > 0, f"no results below {', '.join(arguments.paths)}; run evaluate.py first")
    check_rows(rows)
    known = metrics_of(rows)
    require(arguments.metric in (None, *known), f"--metric {arguments.metric} is not one of {', '.join(known)}")
    first = Path(arguments.paths[0])
    folder = arguments.out or (first if first.is_dir() else first.parent)
    check_writable(folder / "report.md")
    print_table(rows, arguments.metric)
    for file in write_report(rows, folder, arguments.metric):
        print(f"wrote {file}")


if __name__ == "__main__":
    run_module(main)
