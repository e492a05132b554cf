"""docs/decoding.md names every decoding of conf/, and its numbers are those of the result rows."""

import sys

import pytest

from tests.scripts import ROOT

sys.path.insert(0, str(ROOT / "docs" / "build"))
PAGE = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
OTHER_SYSTEMS = {"beam", "greedy", "left_to_right", "diffuseq", "diffuseq_ddim", "diffuseq_mbr"}
PROTOCOLS = {"as_trained", "mbr", "vanilla_mbr", "open_ended", "open_ended_vanilla"}  # options, not methods
CHOICES = {file.stem for file in (ROOT / "conf" / "decoding").glob("[!_]*.yaml")} - OTHER_SYSTEMS - PROTOCOLS


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_every_choice_is_described(name: str) -> None:
    assert f"`{name}`" in PAGE or f"`decoding={name}`" in PAGE


def test_tables_are_those_of_the_rows() -> None:
    """Each is on one page. Also what to type: the difference between a row and the configuration of its strategy."""
    import decoders

    pages = [path.read_text(encoding="utf-8") for path in decoders.PAGES]
    for page in pages:
        assert decoders.with_tables(page) == page, "run python docs/build/decoders.py"
    for name, _ in decoders.tables():
        assert sum(f"<!-- {name}: begin -->" in page for page in pages) == 1
