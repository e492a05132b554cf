"""Error handling of the scripts: invalid input exits with one line and code 2, a bug with a stack trace."""

import errno
import re
import sys
from collections.abc import Iterator
from typing import NoReturn

from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, OmegaConfBaseException

from rdm.app.choices import choices, close_to, did_you_mean, groups_of
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
    "To append to your default list use",  # it would have no effect
    "_",  # in a list of options: shared parts, which cannot be chosen
)
AS_INPUT = "give any text on standard input with text=-: echo 'a text' | python generate.py ckpt=... text=-"
FORKED_RANK = "ProcessRaisedException"
LIGHTNING_CONFIGURATION = "MisconfigurationException"
NO_GPU = "PyTorch finds no GPU on this machine; trainer=cpu trains without one"


def exit_with_message(message: object) -> NoReturn:
    """Print one line to standard error and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def exit_on_mistake(error: BaseException, debug: bool) -> None:
    """Exit with one line if ``error`` is invalid input; return if it is a bug, or with ``debug=true``."""
    message = explain(error)
    if message is not None and not debug:
        exit_with_message(message)


def explain(error: BaseException) -> str | None:
    """Return one line for invalid input; None for a bug, whose stack trace should be shown."""
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
        message = " ".join(str(error.__cause__).split())
        return f"{key}: {NO_GPU if message.startswith('No supported gpu backend') else message}"
    if isinstance(error, MissingConfigException) and error.options:
        return _unknown_choice(error)
    if isinstance(error, ConfigCompositionException) and isinstance(error.__cause__, ConfigAttributeError):
        return _unknown_key(error, error.__cause__)
    if isinstance(error, OverrideParseException):
        return _unparsable(error)
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _without_details(error)
    return None


def _without_details(error: Exception) -> str:
    """The message of an exception of Hydra in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    message = " ".join(line for line in lines if line and not line.startswith(HYDRA_DETAILS))
    return message + (f"; {AS_INPUT}" if message.startswith("Ambiguous value for argument 'text=") else "")


def _unparsable(error: OverrideParseException) -> str:
    """A value that Hydra cannot parse: what to quote, or for a text how to avoid quotes."""
    advice = "a value with special characters needs quotes: 'key=\"a, b\"'"
    if error.override.startswith("text="):
        return f"text: Hydra cannot parse it; {advice}, or {AS_INPUT}"
    return f"{_without_details(error)}; {advice}"


def _unknown_choice(error: MissingConfigException) -> str:
    """The choices of a config group, those that resemble the given name first."""
    missing = str(error.missing_cfg_file)
    found = re.search(r"Available options in '(.+)':", str(error))
    group = found[1] if found else missing.rpartition("/")[0]
    options = [name for name in error.options or () if not name.startswith("_")] or choices(group)
    close = close_to(missing.removeprefix(f"{group}/"), options)
    listed = " ".join([*close, *(name for name in options if name not in close)])
    suggestion = f"; did you mean {close[0]}?" if close else "."
    return f"Could not find '{missing}'{suggestion} Available options in '{group}': {listed}"


def _unknown_key(error: ConfigCompositionException, cause: ConfigAttributeError) -> str:
    """A key that does not exist: the most similar one, or how to pass another argument to a class."""
    message = str(error).splitlines()[0].removesuffix(".")
    node, name = cause.parent_node, str(cause.key)
    if not isinstance(node, DictConfig):
        return message
    known = {str(key) for key in node}
    if node._get_parent() is None:
        known = (known | {*groups_of(str(node.hydra.job.name))}) - {"hydra"}
    target = node.get("_target_")
    add = f"; to pass it to {target}, write + before the key" if target else ""
    return f"{message}{did_you_mean(name, known) or add}"


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
