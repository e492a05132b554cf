"""The trials in docs/learning.md agree with the rows in results/learning.jsonl."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_trials_are_those_of_the_rows() -> None:
    """One line per trial: name, change, steps, CPU seconds of training, BLEU."""
    page = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    lines: dict[str, list[str]] = {}
    for table in re.findall(r"^\| trial \|(?:.*\n\|)+.*$", page, re.MULTILINE):
        for line in table.splitlines()[2:]:
            name, _, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
            lines[name] = numbers
    rows = [json.loads(line) for line in (ROOT / "results" / "learning.jsonl").read_text().splitlines()]
    assert rows
    for row in rows:
        training, bleu = row["training"], row["metrics"]["sacrebleu"]["value"]
        expected = [f"{training['steps']:,}", f"{training['cpu_seconds']:.0f}", f"{bleu:.2f}"]
        assert lines.pop(row["run"].rsplit("/", 1)[-1]) == expected
    assert not lines
