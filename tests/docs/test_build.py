"""The scripts that build the documentation."""

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rdm.app.choices import CONF, choices
from tests.scripts import ROOT

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
sys.path.insert(0, str(ROOT / "docs" / "build"))

import config_reference
import docstrings
import formulas
import hooks


def test_generated_pages_are_in_the_navigation() -> None:
    nav = [{"A": "index.md"}, {"B": ["decoding.md", {"E": "CONFIG"}]}]
    assert hooks.with_generated(nav, {"CONFIG": ["x.md"]}) == [
        {"A": "index.md"},
        {"B": ["decoding.md", {"E": ["x.md"]}]},
    ]


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](../python.md#load)", "[a](../python.md#load)"),
        ("[a](../../RESULTS.md)", "[a](../RESULTS.md)"),
        ("[a](../../rdm/compare.py)", "a"),  # exists, but not on the site
        ("[a](nothing.md)", "[a](nothing.md)"),  # left for the strict build to report
        ("[a](mailto:x@y.z)", "[a](mailto:x@y.z)"),
        ("```\n[a](../../RESULTS.md)\n```", "```\n[a](../../RESULTS.md)\n```"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(link: str, expected: str) -> None:
    there = {"python.md", "RESULTS.md"}
    files: Any = SimpleNamespace(get_file_from_path=lambda path: path if path in there else None)
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri="tutorials/router.md"))
    config: Any = None
    assert hooks.on_page_markdown(link, page, config, files) == expected


def test_every_group_choice_and_key_is_in_the_reference() -> None:
    pages = config_reference.pages()
    folders = {folder.name for folder in CONF.iterdir() if folder.is_dir()} - config_reference.HIDDEN
    assert folders == set(config_reference.all_groups())
    for file in CONF.glob("*/**/*.yaml"):
        group, *rest = file.relative_to(CONF).with_suffix("").parts
        if group in config_reference.HIDDEN:
            continue
        page = pages[f"{group}.md"]
        assert f'"conf/{file.relative_to(CONF).as_posix()}"' in page
        if not file.stem.startswith("_"):
            key = group if group == "experiment" else "/".join([group, *rest[:-1]])
            choice = "/".join(rest) if group == "experiment" else rest[-1]
            assert choice in choices(key)
            assert f"| `{key}={choice}` |" in page
    assert (
        "| `patience` | `null` | with best: stop after this many validations without improvement |" in pages["index.md"]
    )


def test_formulas_are_drawn() -> None:
    html = r'<span class="arithmatex">\(\alpha_t &lt; 1\)</span> <div class="arithmatex">\[\frac{a}{b}\]</div>'
    drawn = formulas.draw_formulas(html)
    assert drawn.count("<svg ") == 2
    assert "arithmatex" not in drawn
    assert "currentColor" in drawn
    names = re.findall(r' id="([^"]+)"', drawn)
    assert len(names) == len(set(names))


def test_doctests_become_code_blocks() -> None:
    text = "Draws.\n\nSee :class:`~rdm.vocab.Vocab`.\n\n>>> 1 + 1\n2\n\nMore."
    assert docstrings.as_markdown(text) == "Draws.\n\nSee `Vocab`.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."
