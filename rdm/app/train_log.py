"""``train.log`` in the run folder: a copy of what a training run prints."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rdm.app.errors import explain


class CopiedStream:
    """A standard stream whose output is also appended to a file.

    A line that ends in a carriage return is updated in place in the terminal, and not copied.
    """

    def __init__(self, stream: TextIO, file: TextIO) -> None:
        self.stream, self.file = stream, file
        self.in_place = False  # whether the last line in the terminal is to be overwritten

    def write(self, text: str) -> int:
        self.stream.write("\x1b[K" + text if self.in_place and text else text)
        self.in_place = text.endswith("\r") if text else self.in_place
        if not text.endswith("\r"):
            self.file.write(text)
        return len(text)

    def write_to_file(self, text: str) -> None:
        """Write text that the terminal shows in another form."""
        self.file.write(text)

    def flush(self) -> None:
        self.stream.flush()
        self.file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def copy_output(file: Path) -> Iterator[None]:
    """Append to ``file`` what is printed, and the error that ends the run."""
    streams = sys.stdout, sys.stderr
    with file.open("a", encoding="utf-8", buffering=1) as copy:
        sys.stdout, sys.stderr = (CopiedStream(stream, copy) for stream in streams)
        try:
            yield
        except Exception as error:
            reason = explain(error)
            copy.write(traceback.format_exc() if reason is None else f"error: {reason}\n")
            raise
        finally:
            sys.stdout, sys.stderr = streams
