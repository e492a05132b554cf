"""Text files: their names, with wildcards and ``.gz``, and their content."""

import gzip
import re
import zlib
from collections.abc import Iterable
from glob import glob
from pathlib import Path

from rdm.errors import UserError, require

PACKED = ".gz"


def versions(file: Path) -> list[Path]:
    """Return ``file`` and ``file.gz``."""
    return [file, file.with_name(file.name + PACKED)]


def existing_version(file: Path) -> Path:
    """Return ``file`` or else ``file.gz``, whichever exists."""
    found = [version for version in versions(file) if version.is_file()]
    require(bool(found), f"there is no {file} (nor {file.name}{PACKED})")
    return found[0]


def any_version_exists(files: Iterable[Path]) -> bool:
    """Return whether any of the files exists, compressed or not."""
    return any(version.is_file() for file in files for version in versions(file))


def matching_names(name: str, root: Path) -> list[str]:
    """Return ``name``, or the files below ``root`` that match its ``*`` and ``?``, sorted, without ``.gz``."""
    if not re.search("[*?]", name):
        return [name]
    pattern = name.replace("[", "[[]")
    found = [each for end in ("", PACKED) for each in glob(pattern + end, root_dir=root, recursive=True)]
    return sorted({each.removesuffix(PACKED) for each in found if (root / each).is_file()})


def read_text(file: Path) -> str:
    """Return the content of a UTF-8 file without a byte order mark."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == PACKED else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{file}, line {line} is not UTF-8: convert the file to UTF-8") from error


def read_raw_lines(file: Path) -> list[str]:
    """Return the lines of a UTF-8 file without line feeds; a file without text is refused."""
    # Only "\n" ends a line: str.splitlines would also split at form feeds and Unicode separators inside a sentence.
    lines = read_text(file).removesuffix("\n").split("\n")
    require(len(lines) > 1 or bool(lines[0].strip()), f"{file} is empty")
    return lines


def read_lines(file: Path) -> list[str]:
    """Return the lines of a UTF-8 file without line ends and surrounding white space."""
    return [line.strip() for line in read_raw_lines(file)]
