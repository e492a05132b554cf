"""``--help`` and tab completion of the scripts, from the commented files of ``conf`` and before Hydra starts."""

import os
import textwrap
from collections.abc import Sequence

from rdm.app.choices import choices, groups_of, in_subfolders, read_script_config, subgroups

WIDTH = 110
COMPLETION_FLAGS = ("-sc", "--shell-completion")


def help_text(script: str) -> str:
    """Usage, examples, config groups with their choices, and keys, read from ``conf/<script>.yaml``."""
    lines = read_script_config(script).splitlines()
    head = [line.removeprefix("#").removeprefix(" ") for line in lines[: lines.index("defaults:")]]
    keys = lines[lines.index("") + 1 : lines.index("hydra:")]
    fixed = set() if script == "train" else {"data"}  # groups whose parts are those of the trained model
    groups = "\n".join(_describe_group(group, meaning, group in fixed) for group, meaning in groups_of(script).items())
    return "\n".join(
        [
            *head,
            "",
            "Groups (group=choice):",
            "",
            groups,
            "",
            "Keys (key=value):",
            "",
            *(f"  {line}".rstrip() for line in keys),
            "--cfg job prints the composed configuration, debug=true shows stack traces, --hydra-help is about Hydra.",
        ]
    )


def _describe_group(group: str, meaning: str, fixed: bool) -> str:
    described = [f"  {group:<18}{meaning}", _wrap(" ".join(choices(group)), indent=20)]
    parts = [] if fixed else subgroups(group)
    described += [_wrap(f"{each}: {' '.join(choices(each))}", indent=20) for each in parts]
    return "\n".join(described)


def _wrap(text: str, indent: int) -> str:
    space = " " * indent
    return textwrap.fill(
        text, WIDTH, initial_indent=space, subsequent_indent=space, break_on_hyphens=False, break_long_words=False
    )


def completions(script: str, arguments: Sequence[str]) -> list[str] | None:
    """What completes the last word of ``COMP_LINE``; None if this is not a completion, or one that Hydra can make.

    Hydra's completion does not list choices in subfolders, such as ``experiment=toy/absorbing``.
    """
    if not any(flag in arguments for flag in COMPLETION_FLAGS):
        return None
    words = os.environ.get("COMP_LINE", "").split(" ")
    group, equals, _ = words[-1].partition("=")
    if not equals or group not in groups_of(script) or not in_subfolders(group):
        return None
    return [word for name in choices(group) if (word := f"{group}={name}").startswith(words[-1])]
