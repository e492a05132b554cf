"""docs/decoding.md names every decoding of conf/, and its numbers are those of the result rows."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
OTHER_SYSTEMS = {"beam", "greedy", "left_to_right", "diffuseq", "diffuseq_ddim", "diffuseq_mbr"}
PROTOCOLS = {"as_trained", "mbr", "vanilla_mbr", "open_ended", "open_ended_vanilla"}  # options, not methods
CHOICES = {file.stem for file in (ROOT / "conf" / "decoding").glob("[!_]*.yaml")} - OTHER_SYSTEMS - PROTOCOLS


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_every_choice_is_described(name: str) -> None:
    assert f"`{name}`" in PAGE or f"`decoding={name}`" in PAGE


def test_numbers_are_those_of_the_rows() -> None:
    """One line per row: system, calls, tokens per call, BLEU and chrF."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| rdm_")]
    text = (ROOT / "results" / "multi30k_decoders.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == len(rows)
    for row in rows:
        scores = [row["metrics"][name]["value"] for name in ("sacrebleu", "chrf")]
        numbers = [row["calls_per_sentence"], row["tokens_per_call"], *scores]
        end = f"{'| '.join(f'{number:.2f} ' for number in numbers)}|"
        assert any(line.startswith(f"| {row['system']} | ") and line.endswith(f"| {end}") for line in lines), row
