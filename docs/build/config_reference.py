"""The reference of the configuration, one page per group, from the commented files of ``conf``."""

import re
from pathlib import Path

from rdm.app.choices import CONF, choices, groups_of, read_script_config, subgroups

SCRIPTS = {
    "train": "python train.py",
    "evaluate": "python evaluate.py",
    "generate": "python generate.py",
    "plan": "python -m rdm.plan",
}
HIDDEN = {"hydra"}
"""Folders that are described by Hydra, not here."""
DEFAULT = re.compile(r"^  - (?P<group>[\w/]+): +(?P<default>\S+)", re.MULTILINE)
KEY = re.compile(r"^(?P<key>\w+): *(?P<default>[^#]*?) *(?:# (?P<comment>.*))?$")


def pages() -> dict[str, str]:
    """All pages of the reference: path below ``reference/config`` and Markdown text."""
    return {"index.md": overview(), **{f"{page_name(group)}.md": group_page(group) for group in all_groups()}}


def page_name(group: str) -> str:
    """The file of a group: the metrics of ``conf/metrics`` are ``metrics.md``; a subgroup is part of its group."""
    return group.replace("/", "_")


def all_groups() -> list[str]:
    """The groups of all scripts in the order of their defaults lists, then those that no defaults list names."""
    named = dict.fromkeys(group for script in SCRIPTS for group in groups_of(script))
    folders = sorted(folder.name for folder in CONF.iterdir() if folder.is_dir() and folder.name not in HIDDEN)
    return [*named, *(folder for folder in folders if folder not in named)]


def defaults_of(script: str) -> dict[str, str]:
    """The default choice of each group of a script."""
    return {entry["group"]: entry["default"] for entry in DEFAULT.finditer(read_script_config(script))}


def overview() -> str:
    """The page with the groups and the keys of every script."""
    lines = [
        "# Configuration",
        "",
        "`group=choice` selects a file of `conf/<group>`, `key=value` sets a value. `--cfg job` prints the composed",
        "configuration, `--help` what this page says. These pages are generated from the commented files of `conf/`.",
        "",
    ]
    for script, command in SCRIPTS.items():
        lines += [f"## `{command}`", "", "| group | default | meaning |", "| --- | --- | --- |"]
        defaults = defaults_of(script)
        lines += [
            f"| [`{group}`]({page_name(group)}.md) | {code(defaults[group])} | {cell(meaning)} |"
            for group, meaning in groups_of(script).items()
        ]
        lines += ["", "| key | default | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{key}` | {code(default)} | {cell(comment)} |" for key, default, comment in keys_of(script)]
        lines.append("")
    return "\n".join(lines)


def keys_of(script: str) -> list[tuple[str, str, str]]:
    """The top-level keys of ``conf/<script>.yaml`` that are no groups: name, default, comment."""
    text = read_script_config(script)
    after = text[text.index("defaults:") :].partition("\n\n")[2].partition("\nhydra:")[0]
    found = (KEY.match(line) for line in after.splitlines())
    return [(match["key"], match["default"].strip(), match["comment"] or "") for match in found if match]


def group_page(group: str) -> str:
    """The page of a group: its meaning and default, its choices, and their files."""
    meanings = {script: groups_of(script).get(group) for script in SCRIPTS}
    lines = [f"# {group}", ""]
    for script, meaning in meanings.items():
        if meaning:
            default = defaults_of(script)[group]
            lines += [f"`{SCRIPTS[script]}`, default {code(default)}: {meaning}.", ""]
    for name in [group, *subgroups(group)]:
        lines += section(name, heading=name != group)
    return "\n".join(lines)


def section(group: str, heading: bool) -> list[str]:
    """Table and files of the choices of a group or subgroup."""
    lines = [f"## {group}", ""] if heading else []
    names = choices(group)
    lines += ["| choice | description |", "| --- | --- |"]
    lines += [f"| `{group}={name}` | {cell(description(CONF / group / f'{name}.yaml'))} |" for name in names]
    lines.append("")
    shared = sorted((CONF / group).rglob("_*.yaml"))
    files = [CONF / group / f"{name}.yaml" for name in names]
    for file in [*files, *(file for file in shared if file.parent == CONF / group or group == "experiment")]:
        path = file.relative_to(CONF.parent).as_posix()
        text = file.read_text(encoding="utf-8").rstrip("\n")
        lines += [
            f'??? note "{path}"',
            "",
            "    ```yaml",
            *(f"    {line}".rstrip() for line in text.split("\n")),
            "    ```",
            "",
        ]
    return lines


def description(file: Path) -> str:
    """The comment at the beginning of a file, without Hydra's package directive."""
    comments = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            comments.append(line.removeprefix("#"))
    head: list[str] = []
    for line in comments:  # indented lines are examples of commands
        if line.startswith("   "):
            break
        head.append(line.strip())
    return " ".join(head)


def code(value: str) -> str:
    return f"`{value}`" if value else ""


def cell(text: str) -> str:
    """Text that may stand in a cell of a table."""
    return re.sub(r"<(?=\w)", "&lt;", text.replace("|", "\\|")) if "`" not in text else text.replace("|", "\\|")
