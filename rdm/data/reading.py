"""Text files: their names, with wildcards and ``.gz``, and their content."""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from glob import glob
from pathlib import Path
from typing import IO

from rdm.errors import UserError, require

PACKED = ".gz"
BLOCK = 2**20  # bytes read at a time
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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


def stream_raw_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without line feeds and byte order mark; a file without text is refused."""
    lines = (line for part in _stream_parts(file) for line in part)
    first = next(lines, "")
    if not first.strip():
        second = next(lines, None)
        require(second is not None, f"{file} is empty")
        yield first
        first = str(second)
    yield first
    yield from lines


def stream_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without line ends and surrounding white space."""
    return map(str.strip, stream_raw_lines(file))


def read_lines(file: Path) -> list[str]:
    """Return the lines of :func:`stream_lines`."""
    return list(stream_lines(file))


def _stream_parts(file: Path) -> Iterator[list[str]]:
    """Yield the lines of a UTF-8 file in lists of about :data:`BLOCK` bytes."""
    before, rest = 0, [b""]
    for number, block in enumerate(_stream_blocks(file)):
        block = block.removeprefix(BYTE_ORDER_MARK) if number == 0 else block
        cut = block.rfind(b"\n")
        if cut < 0:
            rest.append(block)
            continue
        yield (lines := _split(b"".join([*rest, block[:cut]]), file, before))
        before, rest = before + len(lines), [block[cut + 1 :]]
    if last := b"".join(rest):
        yield _split(last, file, before)


def _split(content: bytes, file: Path, before: int) -> list[str]:
    """Return the lines of a part of a file that has ``before`` lines before it."""
    try:
        # Only "\n" ends a line: str.splitlines would also split at form feeds and Unicode separators in a sentence.
        return content.decode().split("\n")
    except UnicodeDecodeError as error:
        line = before + content[: error.start].count(b"\n") + 1
        raise UserError(f"{file}, line {line} is not UTF-8: convert the file to UTF-8") from error


def _stream_blocks(file: Path) -> Iterator[bytes]:
    try:
        with ExitStack() as stack:
            stream: IO[bytes] | gzip.GzipFile = stack.enter_context(file.open("rb"))
            if file.suffix == PACKED:
                stream = stack.enter_context(gzip.open(stream))
            while block := stream.read(BLOCK):
                yield block
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
