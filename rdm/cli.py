"""What the scripts share: a user's mistake ends in one line and exit code 2, never in a stack trace."""

import argparse
import errno
import functools
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from torch.multiprocessing import ProcessRaisedException

from rdm.errors import UserError, refuse
from rdm.locks import lock_folder
from rdm.sweeps import Outcome, conclude, sweeping

Result = TypeVar("Result")


def job(function: Callable[[DictConfig], Result]) -> Callable[[DictConfig], Result | Outcome]:
    """Decorates the function below ``hydra.main``: an error ends a single run, but a sweep goes on and reports it."""

    @functools.wraps(function)
    def guarded(config: DictConfig) -> Result | Outcome:
        try:
            return function(config)
        except Exception as error:
            leave_nothing()
            if config.get("debug") is True:
                raise
            if not sweeping():
                leave(error)
                raise
            reason = explain(error)
            if reason is None:
                traceback.print_exc()
            return Outcome(failure=reason or "".join(traceback.format_exception_only(error)).splitlines()[0])

    return guarded


def leave_nothing() -> None:
    """Remove the folder of the job if Hydra has written down the command, nobody anything else, and nobody works."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    with suppress(UserError):
        names = {file.name for file in folder.iterdir()}
        if ".hydra" in names and all(name in (".hydra", ".lock") or name.endswith(".log") for name in names):
            with lock_folder(folder):
                shutil.rmtree(folder)


class Parser(argparse.ArgumentParser):
    """Takes the arguments of a module; a wrong one is a user's mistake like any other."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help shows what it takes")


def run(main: Callable[[], None], rewrite: Callable[[list[str]], list[str]] = list) -> None:
    """Run a script with the arguments that ``rewrite`` makes of those that were given.

    ``debug=true`` on the command line shows stack traces after all. Exit code 1: a job of a sweep failed.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors come here instead of being printed by Hydra
    try:
        sys.argv[1:] = rewrite(sys.argv[1:])
        main()
    except Exception as error:
        complete = conclude()  # what there is of a sweep that was given up
        leave(error)
        if complete or debugging():
            raise
        # Why jobs failed has been told; that Optuna found no best one among them is no more than a consequence.
        print(f"the sweep ended early: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    if not conclude():
        sys.exit(1)


def leave(error: Exception) -> None:
    """Print one line and exit if ``error`` is a user's mistake; return if it is a bug."""
    message = explain(error)
    if message is not None and not debugging():
        refuse(message)


def debugging() -> bool:
    """Whether stack traces were asked for."""
    return "debug=true" in map(str.lower, sys.argv)


def explain(error: BaseException) -> str | None:
    """One line for a user's mistake, None for anything else (a bug: show everything)."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return str(cause)
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{cause.strerror}: make room; a run goes on with resume=auto"
        cause = cause.__cause__
    if isinstance(error, ProcessRaisedException):  # of a rank that was forked only the text is left
        name = f"{UserError.__module__}.{UserError.__qualname__}: "
        lines = [line.removeprefix(name) for line in str(error).splitlines() if line.startswith(name)]
        return lines[-1] if lines else None
    if isinstance(error, ValueError) and str(error).startswith("Config group override"):  # of Hydra, for group=null
        return f"{error}; only a group that is null by default can be null"
    if isinstance(error, MisconfigurationException):
        return str(error).splitlines()[0]
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be read or written: {error.strerror}; name another place, or make room"
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        place = str(error).splitlines()[-1].removeprefix("full_key: ")
        return f"{place}: {' '.join(str(error.__cause__).split())}"
    if isinstance(error, HydraException | OmegaConfBaseException):
        useful = [line.strip() for line in str(error).splitlines() if line.strip()]
        # Hydra adds where it searched and how to see a stack trace: not the user's concern.
        noise = (
            "Config search path",
            "provider=",
            "Set the environment",
            "object_type=",
            "full_key:",
            "reference_type=",
            "See https://hydra.cc",
        )
        told = " ".join(line for line in useful if not line.startswith(noise))
        quoted = "; a value with special characters needs quotes: 'key=\"a, b\"'"
        return told + (quoted if isinstance(error, OverrideParseException) else "")
    return None
