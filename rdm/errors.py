"""The one exception a script turns into one line and a non-zero exit code."""


class UserError(Exception):
    """Something the user typed or handed in cannot work; the message says what is wrong and what would be right."""


def require(condition: bool, message: str) -> None:
    """Raise :class:`UserError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise UserError(message)
