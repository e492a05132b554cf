"""The tables of docs/systems.md and docs/learning.md are those of the result rows."""

import sys

from tests.scripts import ROOT

sys.path.insert(0, str(ROOT / "docs" / "build"))


def test_tables_are_those_of_the_rows() -> None:
    import row_tables

    for path, names in row_tables.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert row_tables.with_tables(page, names) == page, "run python docs/build/row_tables.py"
