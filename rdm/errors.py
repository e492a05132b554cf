"""The one exception a script turns into one line and a non-zero exit code."""

import sys
from typing import NoReturn


class UserError(Exception):
    """Something the user typed or handed in cannot work; the message says what is wrong and what would be right."""


def require(condition: bool, message: str) -> None:
    """Raise :class:`UserError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise UserError(message)


def refuse(message: object) -> NoReturn:
    """Say what is wrong with a command in one line, and end with exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
