"""README.md: its tables agree with conf/ and with the rows, its links and its picture exist."""

import json
import random
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from rdm.data import toy_words
from rdm.data.toy import ToyTranslation
from rdm.data.toy_language import Clause, Phrase, ToyLanguage
from tests.docs.following import follow, shortened
from tests.scripts import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURES = ROOT / "docs" / "figures"
sys.path.insert(0, str(ROOT / "docs" / "build"))


def test_table_of_what_is_inside_is_that_of_conf() -> None:
    import inside

    assert inside.with_table(README) == README, "run: python docs/build/inside.py"


def test_gloss_is_the_dictionary_of_the_generated_languages() -> None:
    import gloss

    page = gloss.PAGE.read_text(encoding="utf-8")
    assert gloss.with_gloss(page) == page, "run: python docs/build/gloss.py"
    assert "`hund` dog / hound" in page


def test_the_sentence_to_try_is_of_the_generated_language() -> None:
    """The source that README.md, the pages and ``make demo`` name has its translation in the table of the gloss."""
    language, dog, cat = ToyLanguage(), toy_words.ANIMALS[0], toy_words.ANIMALS[1]
    clause = Clause(
        subject=Phrase(dog, plural=False, definite=True, adjectives=toy_words.ADJECTIVES[:1]),
        verb=toy_words.TRANSITIVE[1],
        past=False,
        object=Phrase(cat, plural=True, definite=False, adjectives=()),
        adjuncts=((toy_words.ADVERBS[0], None),),
    )
    source = language.source([clause])
    for page in ("README.md", "Makefile", "docs/index.md", "docs/python.md", "docs/quickstart.md"):
        assert source in (ROOT / page).read_text(encoding="utf-8"), page
    translations = {language.target([clause], random.Random(seed)) for seed in range(200)}
    (line, other) = re.findall(
        r"^\|[^|]*\|[^|]*\| (.* \.) \|$", (ROOT / "docs/quickstart.md").read_text(), re.MULTILINE
    )
    assert {line, other} <= translations


def test_links_exist() -> None:
    """Also those of the pages below docs."""
    pages = [ROOT / "README.md", ROOT / "RESULTS.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        targets = re.findall(r"\]\(([^)#\s]+)|src=\"([^\"]+)\"", text)
        for target in (first or second for first, second in targets):
            if target.startswith("http"):
                continue
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_results_are_those_of_the_rows() -> None:
    rows = [json.loads(line) for line in (ROOT / "results" / "tatoeba_20000.jsonl").read_text().splitlines()]
    measured = {
        (row["system"], row["strategy"]): f"{row['metrics']['sacrebleu']['value']:.2f}"
        for row in rows
        if row["steps"] == 10 and (row["strategy"] == "vanilla" or row["schedule"] == "Cosine()")
    }
    lines = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", README, re.MULTILINE)
    assert len(lines) == 4
    for system, vanilla, adaptive in lines:
        assert (measured[system, "vanilla"], measured[system, "rdm"]) == (vanilla, adaptive)
    assert "49.80" in (ROOT / "RESULTS.md").read_text(encoding="utf-8")


def test_pictures_are_small_and_follow_the_colour_scheme() -> None:
    files = list(FIGURES.glob("*.svg"))
    assert FIGURES / "decoding.svg" in files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert len(text) < 500_000
        assert "prefers-color-scheme: dark" in text
        assert "<script" not in text


def test_badges_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"img\.shields\.io/badge/([^)]*)-\w+\)", README) == [
        f"python-{project['requires-python'].removeprefix('>=')}%2B",
        f"licence-{project['license']}",
    ]


def test_length_and_citation() -> None:
    assert len(README.splitlines()) <= 160
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["preferred-citation"]
    assert paper["title"] in README
    for author in paper["authors"]:
        assert f"{author['family-names']}, {author['given-names']}" in README


@pytest.mark.slow
def test_commands_can_be_followed(tmp_path: Path) -> None:
    """With few steps and sentences; all except the one that needs IWSLT14 and four devices, and the Python lines."""
    follow(shortened("```sh\npython train.py hydra.run.dir=outputs/demo\n```\n"), tmp_path)
    data = tmp_path / "my_folder"
    data.mkdir()
    for split in ("train", "valid", "test"):
        for language, lines in zip(("de", "en"), ToyTranslation(40, 8, 8).read(split), strict=True):
            (data / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    (tmp_path / "in.txt").write_text("da hunde alte heut ei katzin seht .\n")
    page = README.replace("outputs/<run>", "outputs/demo").replace('text="..."', 'text="da hunde schlaft ."')
    page = re.sub(r"^python train\.py experiment=iwslt14/.*\n", "", page, flags=re.MULTILINE)
    page = re.sub(
        r"^```python\n(.*?)^```", r"""```python title="three_lines.py"\n\1```""", page, flags=re.DOTALL | re.MULTILINE
    )
    output = follow(shortened(page) + "```sh\npython three_lines.py\n```\n", tmp_path)
    assert "report.html" in output
    assert json.loads((tmp_path / "out.jsonl").read_text())["candidates"]
