"""Error handling of the scripts: a user's mistake is one line and exit code 2, a bug is a stack trace."""

import errno
import sys
from collections.abc import Iterator
from typing import NoReturn

from hydra.errors import HydraException, InstantiationException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from rdm.errors import UserError

# Lines that Hydra and OmegaConf add to a message: search paths, stack-trace hints, internal types.
HYDRA_DETAILS = (
    "Config search path",
    "provider=",
    "Set the environment",
    "object_type=",
    "full_key:",
    "reference_type=",
    "See https://hydra.cc",
    "_",  # in a list of options: shared parts, which cannot be chosen
)
FORKED_RANK = "ProcessRaisedException"
LIGHTNING_CONFIGURATION = "MisconfigurationException"


def exit_with_message(message: object) -> NoReturn:
    """Print one line to standard error and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def exit_on_mistake(error: BaseException, debug: bool) -> None:
    """Exit with one line if ``error`` is a user's mistake; return if it is a bug, or if stack traces are wanted."""
    message = explain(error)
    if message is not None and not debug:
        exit_with_message(message)


def explain(error: BaseException) -> str | None:
    """One line for a user's mistake; None for a bug, whose stack trace should be shown."""
    for cause in causes(error):
        if isinstance(cause, UserError):
            return str(cause)
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{cause.strerror}: free some space, then continue the run with resume=auto"
    # By name: torch and Lightning may not have been imported, and the import takes seconds.
    kind = type(error).__name__
    if kind == FORKED_RANK:
        return _message_of_forked_rank(str(error))
    if kind == LIGHTNING_CONFIGURATION:
        return str(error).splitlines()[0]
    if isinstance(error, ValueError) and str(error).startswith("Config group override"):  # raised by Hydra
        return f"{error}; only a group that is null by default can be null"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be read or written: {error.strerror}; choose another path, or free some space"
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        key = str(error).splitlines()[-1].removeprefix("full_key: ")
        return f"{key}: {' '.join(str(error.__cause__).split())}"
    if isinstance(error, HydraException | OmegaConfBaseException):
        lines = [line.strip() for line in str(error).splitlines()]
        message = " ".join(line for line in lines if line and not line.startswith(HYDRA_DETAILS))
        quotes = "; a value with special characters needs quotes: 'key=\"a, b\"'"
        return message + (quotes if isinstance(error, OverrideParseException) else "")
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """``error``, what it was raised from, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _message_of_forked_rank(text: str) -> str | None:
    """The message of a :class:`UserError` in the stack trace of another process."""
    prefix = f"{UserError.__module__}.{UserError.__qualname__}: "
    messages = [line.removeprefix(prefix) for line in text.splitlines() if line.startswith(prefix)]
    return messages[-1] if messages else None
