"""Hashes of settings, texts and files, and seeds derived from values; all prefixes of SHA-256."""

import json
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from rdm.errors import UserError


def short_hash(*parts: str) -> str:
    """Hash strings into 20 hexadecimal digits; the boundaries between ``parts`` count.

    >>> short_hash("a", "b") == short_hash("ab")
    False
    """
    return sha256("\0".join(parts).encode()).hexdigest()[:20]


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Hash JSON data into 12 hexadecimal digits; the order of keys does not count. Stored in result rows."""
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def file_hash(path: Path) -> str:
    """Hash the content of a file; a file that cannot be read is a :class:`UserError`."""
    try:
        with path.open("rb") as stream:
            return file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def derive_seed(*parts: object) -> int:
    """Derive a 60-bit seed from the ``repr`` of ``parts``."""
    return int(sha256(repr(parts).encode()).hexdigest()[:15], 16)
