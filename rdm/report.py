"""``python -m rdm.report PATH...``: tables, figures and learning curves of runs and sweeps."""

from pathlib import Path

from rdm.app.arguments import Parser
from rdm.app.scripts import run_module
from rdm.app.training_runs import find_training_runs, read_training_runs
from rdm.errors import require
from rdm.evaluation.curves import final_values_table
from rdm.evaluation.report import print_cells, print_table, write_report
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
    runs = read_training_runs(find_training_runs(arguments.paths))
    below = ", ".join(arguments.paths)
    require(bool(rows or runs), f"no results and no training metrics below {below}; run train.py or evaluate.py first")
    check_rows(rows)
    known = metrics_of(rows)
    if arguments.metric is not None:
        require(bool(rows), f"--metric {arguments.metric}: no results below {below}; run evaluate.py first")
        require(arguments.metric in known, f"--metric {arguments.metric} is not one of {', '.join(known)}")
    first = Path(arguments.paths[0])
    folder = arguments.out or (first if first.is_dir() else first.parent)
    check_writable(folder / "report.md")
    print_table(rows, arguments.metric)
    if runs:
        print_cells(*final_values_table(runs))
    for file in write_report(rows, folder, arguments.metric, runs):
        print(f"wrote {file}")


def run() -> None:
    """The console script ``rdm-report``."""
    run_module(main)


if __name__ == "__main__":
    run()
