"""``python -m rdm.report PATH...``: table and figure from the results below run or sweep folders."""

import argparse
from pathlib import Path

from rdm import cli
from rdm.errors import require
from rdm.evaluation.report import print_table, write_report
from rdm.evaluation.results import read


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rdm.report", description=__doc__)
    parser.add_argument("paths", nargs="+", help="run folders, sweep folders or results files")
    parser.add_argument("--out", type=Path, help="folder of the report (default: the first path, if it is a folder)")
    arguments = parser.parse_args()
    rows = read(arguments.paths)
    require(len(rows) > 0, f"no results below {', '.join(arguments.paths)}; run evaluate.py first")
    print_table(rows)
    first = Path(arguments.paths[0])
    for file in write_report(rows, arguments.out or (first if first.is_dir() else first.parent)):
        print(f"wrote {file}")


if __name__ == "__main__":
    cli.run(main)
