"""Objects in words, for result rows and fingerprints."""


def in_words(part: object) -> str:
    """``Class(option=value, ...)``; objects inside are put into words too."""
    return f"{type(part).__name__}({', '.join(f'{name}={_value(value)}' for name, value in vars(part).items())})"


def _value(value: object) -> str:
    return in_words(value) if hasattr(value, "__dict__") and not isinstance(value, type) else str(value)
