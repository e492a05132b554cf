"""Command-line arguments: the only place where they are read or rewritten before Hydra parses them.

- ``train.py ckpt=<run>`` starts with the overrides of that run (:func:`resume_overrides`),
- ``evaluate.py ckpt=<folder of runs, or pattern>`` becomes a sweep over its runs (:func:`expand_runs`).
"""

import argparse
from collections.abc import Iterable, Sequence
from glob import glob
from pathlib import Path
from typing import NoReturn

from rdm.app.run_folder import RunFolder, runs_in
from rdm.errors import UserError, require


class Parser(argparse.ArgumentParser):
    """Parser for the modules that take options; a wrong option is a :class:`UserError`."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists the options")


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


def debug_requested(arguments: Iterable[str]) -> bool:
    """Whether ``debug=true`` is among the arguments: stack traces are then shown for every error."""
    return "debug=true" in (argument.lower() for argument in arguments)


def resume_overrides(arguments: Sequence[str]) -> list[str]:
    """With ``ckpt=<run>``: the overrides the run was started with, then the given ones, which win."""
    for argument in arguments:
        if not argument.startswith("ckpt="):
            continue
        path = Path(argument.removeprefix("ckpt=").strip("'\""))
        recorded = RunFolder(path if path.is_dir() else path.parent.parent).overrides
        # Overrides of Hydra itself could name code to execute; runs started by train.py never record any.
        excluded = ("ckpt=", "resume=", "hydra")
        kept = [each for each in recorded if not each.lstrip("+~").startswith(excluded) and each not in arguments]
        if recorded:
            return [*kept, *arguments]
    return list(arguments)


def expand_runs(arguments: Sequence[str]) -> list[str]:
    """Replace ``ckpt=<folder of runs, or pattern>`` by a sweep over those runs."""
    return [part for argument in arguments for part in _expanded(argument)]


def _expanded(argument: str) -> list[str]:
    pattern = argument.removeprefix("ckpt=")
    places = [Path(place) for place in sorted(glob(pattern))] if pattern != argument else []
    runs = [run for place in places for run in runs_in(place)]
    if not runs or [pattern] == [str(run) for run in runs]:
        return [argument]  # a single run, a list of runs, or a path that does not exist
    quoted = ",".join("'" + str(run).replace("'", r"\'") + "'" for run in runs)
    return [f"ckpt={quoted}", *(["hydra.mode=MULTIRUN"] if len(runs) > 1 else [])]
