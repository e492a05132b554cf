"""The HTML of the decoding page."""

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

from rdm.page.page import Page, merge_examples, render, text_direction, token_widths
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


def test_direction_of_the_output_holds_from_the_first_iteration_on() -> None:
    """Masks lead at first, and have no direction; without a letter in the output the source decides."""
    texts = {("שלום world", "a"): "rtl", ("hello עולם", "م"): "ltr", ("12 .", "مرحبا"): "rtl", ("", ""): "ltr"}
    for (output, source), direction in texts.items():
        assert text_direction(output, source) == direction
        decoded = dataclasses.replace(trajectory("long", LONG), output=output)
        tags = Tags(render([Example(source, [], [decoded])])).tags
        shown = [attributes["dir"] for _, attributes in tags if attributes.get("class") == "tokens"]
        assert shown == [direction] * len(LONG)


def test_candidates_of_many_decodings_are_closed_and_their_outputs_shown() -> None:
    few, many = (Tags(render([Example("a", [], [trajectory("d", SHORT)] * count)])) for count in (3, 4))
    for page, count in ((few, 3), (many, 4)):
        candidates = [attributes for _, attributes in page.tags if attributes.get("class") == "candidates"]
        outputs = [attributes for _, attributes in page.tags if attributes.get("class") == "output"]
        assert ["open" in each for each in candidates] == [count == 3] * count
        assert len(outputs) == (0 if count == 3 else count)


def test_legend_has_the_states_that_occur() -> None:
    short, long = (Tags(render([Example("a", [], [trajectory("d", states)])])).text for states in (SHORT, LONG))
    assert ("sent back to noise" in short, "sent back to noise" in long) == (False, True)
    assert "deleted" not in short + long


def test_list_of_sentences_is_for_several_examples() -> None:
    several, single = (Tags(render(examples)) for examples in (EXAMPLES, EXAMPLES[:1]))
    targets = [attributes["value"] for name, attributes in several.tags if name == "option"]
    assert targets == [attributes["id"] for name, attributes in several.tags if name == "section"]
    assert "1. a source" in several.text
    assert "select" not in [name for name, _ in single.tags]


def test_examples_of_one_source_are_merged() -> None:
    first, second, third = (trajectory(name, SHORT) for name in ("first", "second", "third"))
    merged = merge_examples([Example("a", ["r"], [first]), Example("b", [], [second]), Example("a", ["r"], [third])])
    assert merged == [Example("a", ["r"], [first, third]), Example("b", [], [second])]


def test_page_is_written_into_a_new_folder(tmp_path: Path) -> None:
    page = Page(tmp_path / "new" / "page.html", EXAMPLES)
    page.write()
    assert page.file.read_text(encoding="utf-8") == render(EXAMPLES)
