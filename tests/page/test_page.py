"""The HTML of the decoding page."""

import re
from html.parser import HTMLParser
from pathlib import Path

from rdm.page.page import Page, merge_examples, render, token_widths
from rdm.page.trajectory import Example
from tests.page.helpers import EVIL, EVIL_ATTRIBUTE, EXAMPLES, LONG, NEW, NOISE, SHORT, trajectory


class Tags(HTMLParser):
    """Collects the tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data.strip())


def test_text_is_escaped() -> None:
    """Markup in sources, tokens and settings is shown verbatim and makes no tags."""
    page = Tags(render(EXAMPLES))
    names = [name for name, _ in page.tags]
    assert names.count("script") == 1
    assert "img" not in names
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
    assert EVIL in page.text
    assert EVIL_ATTRIBUTE in page.text
    titles = {attributes["title"] for name, attributes in page.tags if name == "span" and "title" in attributes}
    assert f"{EVIL}: kept, probability 75%" in titles


def test_page_loads_no_external_resources() -> None:
    html = render(EXAMPLES)
    assert "://" not in html
    assert not re.search(r"url\(|@import|<link|\ssrc=", html.replace("&lt;img src=", ""))


def test_page_has_every_token_of_every_iteration() -> None:
    tags = Tags(render([Example("a source", [], [trajectory("long", LONG)])])).tags
    steps: list[list[str]] = []
    for _, attributes in tags:
        kinds = str(attributes.get("class")).split()
        if kinds == ["step"]:
            steps.append([])
        elif kinds[0] == "token" and steps:
            steps[-1].append(kinds[1])
    assert steps == [[str(state) for state in row] for row in LONG]
    assert "reference" not in Tags(render([Example("x", [], [trajectory("short", SHORT)])])).text


def test_token_widths_are_those_of_the_longest_text() -> None:
    """A mask counts as two characters."""
    assert token_widths(trajectory("x", [[NOISE, NOISE], [NEW, NOISE]], "longest")) == {0: 7, 1: 2}


def test_examples_of_one_source_are_merged() -> None:
    first, second, third = (trajectory(name, SHORT) for name in ("first", "second", "third"))
    merged = merge_examples([Example("a", ["r"], [first]), Example("b", [], [second]), Example("a", ["r"], [third])])
    assert merged == [Example("a", ["r"], [first, third]), Example("b", [], [second])]


def test_page_is_written_into_a_new_folder(tmp_path: Path) -> None:
    page = Page(tmp_path / "new" / "page.html", EXAMPLES)
    page.write()
    assert page.file.read_text(encoding="utf-8") == render(EXAMPLES)
