"""Command-line arguments: the only place where they are read or rewritten before Hydra parses them.

- ``train.py ckpt=<run>`` starts with the overrides of that run (:func:`resume_overrides`),
- ``logger=null`` becomes what Hydra accepts (:func:`deselect_groups`),
- ``evaluate.py ckpt=<folder of runs, or pattern>`` becomes a sweep over its runs (:func:`expand_runs`),
- a value that is an existing path is quoted: names of sweep folders contain commas (:func:`quote_paths`),
- former names of keys are replaced (:func:`rename_keys`),
- flags such as ``-m`` and ``--config-dir conf`` may stand anywhere (:func:`flags_first`).
"""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from rdm.app.run_folder import RunFolder, runs_in
from rdm.app.trust import check_recorded
from rdm.errors import UserError, require

RENAMED = {
    "system.pairing": "system.copies",
    "logger.project": "logger.wandb.project",
    "logger.offline": "logger.wandb.offline",
    "logger.name": "logger.wandb.name",
}
"""Former names of keys."""
NEEDS_QUOTES = re.compile(r"[,=~()\[\]{}:' ]")
"""Characters of a path with a meaning in the override grammar of Hydra."""


FLAGS_WITH_VALUE = {
    "--config-dir",
    "-cd",
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
    "--cfg",
    "-c",
    "--package",
    "-p",
}
"""Flags of Hydra that are followed by a value."""


class Parser(argparse.ArgumentParser):
    """Parser for the modules that take options; an invalid option raises :class:`UserError`."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists the options")


def command(script: str) -> str:
    """How the user calls a script: ``python evaluate.py`` in a checkout, ``rdm-evaluate`` if the package is installed.

    >>> command("evaluate")
    'python evaluate.py'
    """
    return f"rdm-{script}" if Path(sys.argv[0]).name.startswith("rdm-") else f"python {script}.py"


def split_key_values(arguments: Iterable[str], keys: Sequence[str]) -> tuple[list[Path], dict[str, str]]:
    """Separate existing paths from ``key=value``, for modules that are not run by Hydra."""
    paths, values = [], {}
    for argument in arguments:
        key, separator, value = argument.partition("=")
        if Path(argument).exists():
            paths.append(Path(argument))
        elif separator and key in keys:
            require(bool(value), f"{key}: a value is needed")
            values[key] = value
        else:
            known = ", ".join(f"{each}=..." for each in keys)
            what = f"{key}: no such key" if separator and "/" not in key else f"{argument} does not exist"
            raise UserError(f"{what}; give run or sweep folders and {known}")
    return paths, values


def key_values(arguments: Iterable[str], keys: Sequence[str]) -> dict[str, str]:
    """Return the values of ``key=value`` arguments; anything else raises :class:`UserError`.

    >>> key_values(["ckpt=outputs/run", "average=5"], ["ckpt", "average"])
    {'ckpt': 'outputs/run', 'average': '5'}
    """
    values: dict[str, str] = {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        known = ", ".join(f"{each}=..." for each in keys)
        require(key in keys, f"{argument}: there is no such option; give {known}")
        require(bool(value), f"{key}: a value is needed")
        require(key not in values, f"{key} is given twice")
        values[key] = value
    return values


def debug_requested(arguments: Iterable[str]) -> bool:
    """Whether ``debug=true`` is among the arguments: stack traces are then shown for every error."""
    return "debug=true" in (argument.lower() for argument in arguments)


def help_requested(arguments: Iterable[str]) -> bool:
    """Whether ``--help`` or ``-h`` is among the arguments."""
    return not {"--help", "-h"}.isdisjoint(arguments)


def flags_first(arguments: Sequence[str]) -> list[str]:
    """Move flags to the front: Hydra's parser refuses overrides on both sides of a flag.

    >>> flags_first(["ckpt=a", "--config-dir", "conf", "decoding=margin", "-m"])
    ['--config-dir', 'conf', '-m', 'ckpt=a', 'decoding=margin']
    """
    flags: list[str] = []
    overrides: list[str] = []
    for before, argument in pairwise(["", *arguments]):
        is_flag = argument.startswith("-") or before in FLAGS_WITH_VALUE
        (flags if is_flag else overrides).append(argument)
    return flags + overrides


def rename_keys(arguments: Sequence[str]) -> list[str]:
    """Replace deprecated keys by their current names, with one notice each on standard error."""
    return [_renamed(argument) for argument in arguments]


def _renamed(argument: str) -> str:
    key, equals, value = argument.partition("=")
    name = key.lstrip("+~")
    for former, present in RENAMED.items():
        if f"{name}.".startswith(f"{former}."):
            print(f"notice: {former} is now called {present}", file=sys.stderr)
            prefix = key[: len(key) - len(name)]
            return f"{prefix}{present}{name.removeprefix(former)}{equals}{value}"
    return argument


def quote_paths(arguments: Sequence[str]) -> list[str]:
    """Quote values that are existing paths and that Hydra would parse as something else."""
    return [_quoted_path(argument) for argument in arguments]


def _quoted_path(argument: str) -> str:
    key, _, value = argument.partition("=")
    if NEEDS_QUOTES.search(value) and "/" in value and not value.startswith(("'", '"')) and is_path(value):
        return f"{key}={quote(value)}"
    return argument


def is_path(value: str) -> bool:
    """Whether a file or folder of this name exists."""
    try:
        return Path(value).exists()
    except (OSError, ValueError):  # too long, or with a null byte: a text
        return False


def quote(value: str) -> str:
    """A string in the override grammar of Hydra."""
    return "'" + value.replace("'", r"\'") + "'"


def deselect_groups(arguments: Sequence[str]) -> list[str]:
    """Replace ``logger=null`` by an empty selection: Hydra refuses null on the command line."""
    return ["logger=[]" if argument == "logger=null" else argument for argument in arguments]


def resume_overrides(arguments: Sequence[str]) -> list[str]:
    """With ``ckpt=<run>``: the recorded overrides of the run, then the given ones, which take precedence."""
    for argument in arguments:
        if not argument.startswith("ckpt="):
            continue
        both = any(each.startswith("init=") for each in arguments) and argument not in ("ckpt=", "ckpt=null")
        if both:
            raise UserError("ckpt continues a run, init starts a new one from its weights: leave one out")
        path = Path(argument.removeprefix("ckpt=").strip("'\""))
        run = RunFolder(path if path.is_dir() else path.parent.parent)
        # Overrides of Hydra itself could name code to execute; runs started by train.py never record any.
        excluded = ("ckpt=", "resume=", "trust=", "hydra")
        kept = [each for each in run.overrides if not each.lstrip("+~").startswith(excluded) and each not in arguments]
        return [*check_recorded(kept, run.folder / "versions.json", trust_argument(arguments)), *arguments]
    return list(arguments)


def trust_argument(arguments: Iterable[str]) -> tuple[str, ...]:
    """The packages of ``trust=a`` or ``trust=[a,b]`` among the arguments."""
    values = [each.removeprefix("trust=").strip("[]'\"") for each in arguments if each.startswith("trust=")]
    return tuple(package for value in values for package in value.split(",") if package != "null")


def expand_runs(arguments: Sequence[str]) -> list[str]:
    """Replace ``ckpt=<folder of runs, or pattern>`` by a sweep over those runs."""
    return [part for argument in arguments for part in _expanded(argument)]


def _expanded(argument: str) -> list[str]:
    pattern = argument.removeprefix("ckpt=")
    if pattern == argument:
        return [argument]
    places = [Path(pattern)] if is_path(pattern) else [Path(place) for place in sorted(glob(pattern))]
    runs = [run for place in places for run in runs_in(place)]
    if not runs or [pattern] == [str(run) for run in runs]:
        return [argument]  # a single run, a list of runs, or a path that does not exist
    quoted = ",".join(quote(str(run)) for run in runs)
    return [f"ckpt={quoted}", *(["hydra.mode=MULTIRUN"] if len(runs) > 1 else [])]
