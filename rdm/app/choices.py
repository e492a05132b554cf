"""Config groups and their choices, read from the files of ``conf`` without composing them."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
CONF = next(
    folder for folder in (PACKAGE_FOLDER / "conf", PACKAGE_FOLDER.parent / "conf") if (folder / "train.yaml").is_file()
)
"""The configuration files: inside the package if it was installed from a wheel, beside it in a checkout."""
GROUP = re.compile(r"^  - (?P<group>[\w/]+): +\S+ +# (?P<meaning>.+)$", re.MULTILINE)
"""An entry of a defaults list with its comment."""


def read_script_config(script: str) -> str:
    """The commented text of ``conf/<script>.yaml``."""
    return (CONF / f"{script}.yaml").read_text(encoding="utf-8")


def groups_of(script: str) -> dict[str, str]:
    """The config groups of a script, each with its comment in the defaults list."""
    return {entry["group"]: entry["meaning"] for entry in GROUP.finditer(read_script_config(script))}


def subgroups(group: str) -> list[str]:
    """Groups below a group, such as ``data/tokenizer``; a folder below ``experiment`` is part of the choice instead."""
    folders = sorted(folder for folder in (CONF / group).iterdir() if folder.is_dir())
    return [] if in_subfolders(group) else [f"{group}/{folder.name}" for folder in folders]


def in_subfolders(group: str) -> bool:
    """Whether all choices of the group lie in subfolders, as in ``experiment=toy/absorbing``."""
    return (CONF / group).is_dir() and not list((CONF / group).glob("[!_]*.yaml"))


def choices(group: str) -> list[str]:
    """The names that can be chosen for a group; files whose name starts with ``_`` are shared parts.

    >>> choices("reweighting")
    ['constant', 'linear', 'original']
    >>> "toy/absorbing" in choices("experiment")
    True
    """
    folder = CONF / group
    files = folder.glob("*/[!_]*.yaml" if in_subfolders(group) else "[!_]*.yaml")
    return sorted(file.relative_to(folder).with_suffix("").as_posix() for file in files)


def close_to(word: str, known: Iterable[str]) -> list[str]:
    """Up to five names that resemble ``word``, the most similar first."""
    return get_close_matches(word, sorted(known), 5)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean ...?"``, or an empty string if nothing resembles ``word``.

    >>> did_you_mean("optimiser", ["optimizer", "model"])
    '; did you mean optimizer?'
    """
    close = close_to(word, known)
    return f"; did you mean {close[0]}?" if close else ""
