"""The scripts: rewritten arguments, Hydra, errors and exit codes around a job.

A job is the function ``job(config)`` of ``rdm/app/<name>.py``. Its module is imported when Hydra has composed the
configuration: torch and Lightning take seconds to import, and a typo should not.
"""

import functools
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from rdm.allocation import keep_freed_memory
from rdm.app.arguments import (
    debug_requested,
    deselect_groups,
    expand_runs,
    flags_first,
    help_requested,
    quote_paths,
    rename_keys,
    resume_overrides,
)
from rdm.app.checks import CHECK_FILES, check_options, check_overrides
from rdm.app.choices import CONF
from rdm.app.composition import register
from rdm.app.errors import exit_on_mistake, explain
from rdm.app.help import completions, help_text
from rdm.app.sweeps import JobResult, finish_sweep, sweeping
from rdm.app.targets import add_working_directory
from rdm.errors import UserError
from rdm.locks import lock_folder
from rdm.training.deferred_torchmetrics import defer_torchmetrics  # imports no torch

Rewrite = Callable[[Sequence[str]], list[str]]


def train() -> None:
    """``python train.py``."""
    run_script("train", deselect_groups, resume_overrides, rename_keys, quote_paths)


def evaluate() -> None:
    """``python evaluate.py``."""
    run_script("evaluate", deselect_groups, rename_keys, expand_runs, quote_paths)


def generate() -> None:
    """``python generate.py``."""
    run_script("generate", rename_keys, quote_paths)


def run_script(name: str, *rewrites: Rewrite) -> None:
    """Run the job ``name`` on the configuration composed from ``conf/<name>.yaml`` and the arguments.

    Exit codes: 0; 1 if a job of a sweep failed; 2 for a user's mistake.
    """
    register()
    add_working_directory()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach run_module instead of being printed by Hydra

    def job(config: DictConfig) -> Any:
        check_options(config, name)
        check_overrides(config, HydraConfig.get().overrides.task, name)
        CHECK_FILES[name](config)
        return import_module(f"rdm.app.{name}").job(config)

    def main() -> None:
        if help_requested(sys.argv[1:]):
            return print(help_text(name))
        completed = completions(name, sys.argv[1:])
        if completed is not None:
            return print(*completed, sep="\n")
        for rewrite in (*rewrites, flags_first):
            sys.argv[1:] = rewrite(sys.argv[1:])
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(guarded(job))()

    run_module(main)


def run_module(main: Callable[[], None]) -> None:
    """Run ``main``; invalid input is reported in one line; with ``debug=true`` every error has a stack trace."""
    defer_torchmetrics()
    keep_freed_memory()
    try:
        main()
    except Exception as error:
        sweep_succeeded, debug = finish_sweep(), debug_requested(sys.argv[1:])
        exit_on_mistake(error, debug)
        if sweep_succeeded or debug:
            raise
        # The reasons of failed jobs are printed; that Optuna found no best trial among them is only a consequence.
        print(f"the sweep ended early: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    if not finish_sweep():
        sys.exit(1)


def guarded(job: Callable[[DictConfig], Any]) -> Callable[[DictConfig], Any]:
    """Wrap ``job``: an error exits a single run, but becomes a failed :class:`JobResult` in a sweep."""

    @functools.wraps(job)
    def run(config: DictConfig) -> Any:
        try:
            return job(config)
        except Exception as error:
            debug = debug_requested(HydraConfig.get().overrides.task)
            if not sweeping():
                exit_on_mistake(error, debug)  # here, because Hydra prints more about an exception that leaves the job
            if not sweeping() or debug:
                raise
            reason = explain(error)
            if reason is None:
                traceback.print_exc()
            return JobResult(failure=reason or traceback.format_exception_only(error)[0].splitlines()[0])
        finally:
            remove_unused_folder()  # of a job that failed, or of a rank of torchrun that started in the next second
            if "wandb" in sys.modules:  # an open W&B run would receive what the next job of a sweep logs
                sys.modules["wandb"].finish()

    return run


def remove_unused_folder() -> None:
    """Remove the job's folder if only Hydra's own files are in it and no process holds its lock."""
    folder = Path(HydraConfig.get().runtime.output_dir).resolve()
    if folder == Path.cwd():  # evaluate.py and generate.py have no folder
        return
    with suppress(UserError):
        names = {file.name for file in folder.iterdir()}
        if ".hydra" in names and all(name in (".hydra", ".lock") or name.endswith(".log") for name in names):
            with lock_folder(folder):
                shutil.rmtree(folder)
