"""Results of a long command, stored batch by batch: the command can be killed and continued."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rdm.errors import UserError, require
from rdm.hashing import settings_hash
from rdm.locks import lock_or_refuse


class ResumableResults:
    """The file ``<target>.partial``: a line with the settings of the command, then one line per finished batch.

    A context manager that holds the lock of the file. After :meth:`remove`, or if no batch was finished, nothing is
    left of it. A last line without line end was being written when the process was killed; it is discarded.

    Args:
        target: the file or folder that the command writes when it has all results.
        settings: everything the results depend on; a file of other settings is refused.

    Attributes:
        done: the results that the file held when it was opened, by the number of the batch.
    """

    def __init__(self, target: Path, settings: Mapping[str, Any]) -> None:
        self.file = target.with_name(f"{target.name}.partial")
        self.settings = settings_hash(settings)
        self.done: dict[int, list[dict[str, Any]]] = {}
        self._empty = True

    def __enter__(self) -> "ResumableResults":
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._stream: IO[bytes] = self.file.open("a+b", buffering=0)
        try:
            lock_or_refuse(self._stream, f"another process is writing {self.file}; wait for it, or choose another file")
            self._read()
        except BaseException:
            self._stream.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._empty:
            self.remove()
        self._stream.close()

    def add(self, number: int, rows: list[dict[str, Any]]) -> None:
        """Store the results of batch ``number``; they are not kept in memory."""
        self._empty = False
        self._write({"batch": number, "rows": rows})

    def remove(self) -> None:
        """Delete the file: the results have been written to their destination."""
        self.file.unlink(missing_ok=True)

    def _read(self) -> None:
        self._stream.seek(0)
        content = self._stream.read()
        complete = content[: content.rfind(b"\n") + 1]
        self._stream.truncate(len(complete))
        try:
            header, *lines = [json.loads(line) for line in complete.splitlines()] or [None]
            found = None if header is None else header["settings"]
            self.done = {line["batch"]: line["rows"] for line in lines}
            self._empty = not self.done
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f"{self.file} is not a file of stored results; delete it") from error
        if found is None:
            self._write({"settings": self.settings})
        message = f"{self.file} holds unfinished results of other settings; delete it, or choose another file"
        require(found in (None, self.settings), message)

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        while data:
            data = data[self._stream.write(data) :]
