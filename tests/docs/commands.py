"""The commands in the shell blocks of documents."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from tests.scripts import ROOT

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
PLACEHOLDER = re.compile(r"<[\w ]+>")
CONFIGS = {"train.py": "train", "evaluate.py": "evaluate", "generate.py": "generate", "rdm.plan": "plan"}
"""Scripts and modules that are configured by Hydra, and the name of their configuration."""


def commands(file: Path) -> list[list[str]]:
    """The commands of a document, without comments; placeholders such as ``<run>`` are replaced with a word."""
    blocks = BLOCK.findall(file.read_text(encoding="utf-8"))
    return [words for block in blocks for words in split(PLACEHOLDER.sub("word", block.replace("\\\n", " ")))]


def split(block: str) -> Iterator[list[str]]:
    """The words of each command of a block; quoted text may span lines."""
    read = ""
    for line in block.splitlines():
        read += line + "\n"
        try:
            words = shlex.split(read, comments=True)
        except ValueError:  # no closing quotation yet
            continue
        read = ""
        if words:
            yield words
    assert not read, f"no closing quotation: {read}"


def python_commands(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Script or module, and its arguments, of what is run by Python, also after ``srun``, ``torchrun`` or a pipe."""
    for words in commands(file):
        for index, word in enumerate(words):
            if word.endswith(".py"):
                yield word, words[index + 1 :]
            elif word == "-m" and words[index - 1].endswith("python"):
                yield words[index + 1], words[index + 2 :]
            else:
                continue
            break


def composed(arguments: list[str]) -> list[list[str]]:
    """Lists of overrides that together compose every value of a multirun.

    Flags, placeholders and Hydra's own keys are left out. The first list has the first value of every override, each
    other list has one more value of one of them.
    """
    words = arguments[: arguments.index("<")] if "<" in arguments else arguments
    given = [
        word for word in words if "=" in word and not word.startswith(("-", "hydra")) and not word.endswith("=word")
    ]
    values = {each.key_or_group: (each, each.input_line) for each in OverridesParser.create().parse_overrides(given)}
    firsts: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for key, (override, line) in values.items():
        if override.is_sweep_override():
            assert line is not None
            name, _, text = line.partition("=")
            first, *more = (f"{name}={value}" for value in text.split(","))
            firsts[key] = first
            others += [(key, value) for value in more]
        else:
            assert line is not None
            firsts[key] = line
    lists = [list(firsts.values())]
    lists += [[value if each == key else line for each, line in firsts.items()] for key, value in others]
    return lists


def owned_pages() -> list[Path]:
    """README.md, RESULTS.md and the pages below ``docs``."""
    return [ROOT / "README.md", ROOT / "RESULTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
