"""RESULTS.md agrees with the result rows in results/."""

import json
import re
from pathlib import Path

import pytest

from rdm.evaluation.report import write_report
from rdm.evaluation.results import read_results

ROOT = Path(__file__).parent.parent
ROWS = sorted((ROOT / "results").glob("*.jsonl"))


def tables(page: str) -> list[str]:
    """The Markdown tables of a text."""
    return re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)


@pytest.fixture(scope="module")
def page() -> list[str]:
    return tables((ROOT / "RESULTS.md").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_tables_are_those_of_the_report(page: list[str], tmp_path: Path) -> None:
    files = [write_report(read_results([file]), tmp_path / file.stem)[0] for file in ROWS]
    reported = {table for file in files for table in tables(file.read_text(encoding="utf-8"))}
    measured = [table for table in page if table.startswith("| system |")]
    assert len(measured) >= len(ROWS) - 1  # trials.jsonl has a table in another format
    for table in measured:
        assert table in reported


def test_training_costs_are_those_of_the_rows(page: list[str]) -> None:
    """Parameters, steps, target tokens, minutes."""
    recorded = set()
    for row in (json.loads(line) for file in ROWS for line in file.read_text(encoding="utf-8").splitlines()):
        training = row["training"]
        sizes = [f"{training[size]:,}" for size in ("parameters", "steps", "target_tokens")]
        recorded.add(" | ".join([row["run"], row["system"], *sizes, f"{training['seconds'] / 60:.1f}"]))
    lines = [line for table in page if table.startswith("| training |") for line in table.splitlines()[2:]]
    assert lines
    for line in lines:
        assert line.strip("| ") in recorded


def test_trials_are_those_of_the_rows(page: list[str]) -> None:
    """One line per trial: name, change, steps, minutes, BLEU."""
    lines = {}
    for table in (table for table in page if table.startswith("| trial |")):
        for line in table.splitlines()[2:]:
            name, _, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
            lines[name] = numbers
    rows = [json.loads(line) for line in (ROOT / "results" / "trials.jsonl").read_text().splitlines()]
    for row in rows:
        training, bleu = row["training"], row["metrics"]["sacrebleu"]["value"]
        expected = [f"{training['steps']:,}", f"{training['seconds'] / 60:.1f}", f"{bleu:.2f}"]
        assert lines.pop(row["run"].rsplit("/", 1)[-1]) == expected
    assert not lines
