"""RESULTS.md says what the rows beside it say."""

import json
import re
from pathlib import Path

import pytest

from rdm.evaluation.report import write_report
from rdm.evaluation.results import read_results

HERE = Path(__file__).parent.parent
ROWS = sorted((HERE / "results").glob("*.jsonl"))


def tables(page: str) -> list[str]:
    """The Markdown tables of a page."""
    return re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)


@pytest.fixture(scope="module")
def page() -> list[str]:
    return tables((HERE / "RESULTS.md").read_text(encoding="utf-8"))


def test_every_table_is_one_of_the_report(page: list[str], tmp_path: Path) -> None:
    reports = [
        write_report(read_results([str(file)]), tmp_path / file.stem)[0].read_text(encoding="utf-8") for file in ROWS
    ]
    made = {table for report in reports for table in tables(report)}
    measured = [table for table in page if table.startswith("| system |")]
    assert len(measured) >= len(ROWS) - 1  # the trials have a table of their own
    for table in measured:
        assert table in made


def test_every_training_is_one_of_the_rows(page: list[str]) -> None:
    """What it took: parameters, steps, target tokens, minutes."""
    made = set()
    for row in (json.loads(line) for file in ROWS for line in file.read_text(encoding="utf-8").splitlines()):
        training = row["training"]
        sizes = [f"{training[size]:,}" for size in ("parameters", "steps", "target_tokens")]
        made.add(" | ".join([row["run"], row["system"], *sizes, f"{training['seconds'] / 60:.1f}"]))
    told = [line for table in page if table.startswith("| training |") for line in table.splitlines()[2:]]
    assert told
    for line in told:
        assert line.strip("| ") in made


def test_every_trial_is_told(page: list[str]) -> None:
    """A line each: its name, what was changed, steps, minutes, BLEU."""
    lines = {}
    for table in (table for table in page if table.startswith("| trial |")):
        for line in table.splitlines()[2:]:
            name, _, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
            lines[name] = numbers
    rows = [json.loads(line) for line in (HERE / "results" / "trials.jsonl").read_text().splitlines()]
    for row in rows:
        training, bleu = row["training"], row["metrics"]["sacrebleu"]["value"]
        told = [f"{training['steps']:,}", f"{training['seconds'] / 60:.1f}", f"{bleu:.2f}"]
        assert lines.pop(row["run"].rsplit("/", 1)[-1]) == told
    assert not lines
