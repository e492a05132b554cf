"""The numbers of docs/systems.md are those of the result rows."""

import sys

from tests.scripts import ROOT

sys.path.insert(0, str(ROOT / "docs" / "build"))


def test_tables_are_those_of_the_rows() -> None:
    import systems

    page = systems.PAGE.read_text(encoding="utf-8")
    assert systems.with_tables(page) == page, "run python docs/build/systems.py"
