"""Docstrings as Markdown: doctests become code blocks, roles become references."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"(?:^[ \t]*>>> .*\n?(?:^[ \t]*\S.*\n?)*)+", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|obj):`~?([\w.]+)`")


class PlainDocstrings(Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring with its doctests fenced and without roles.

    >>> print(as_markdown("See :class:`rdm.vocab.Vocab`."))
    See `Vocab`.
    """
    text = ROLE.sub(lambda match: f"`{match[1].rsplit('.', 1)[-1]}`", text)
    return DOCTEST.sub(fenced, text)


def fenced(match: re.Match[str]) -> str:
    lines = match[0].rstrip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    space = " " * indent
    return "\n".join([f"{space}```pycon", *lines, f"{space}```", ""])
