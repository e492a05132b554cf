"""Arrays that are written piece by piece and read like those of ``numpy.save``."""

from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


class ArrayFile:
    """A one-dimensional ``.npy`` file whose length need not be known in advance; a context manager.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with ArrayFile(Path(folder) / "a.npy", np.int32) as array:
    ...         array.append(np.arange(2))
    ...         array.append(np.arange(3))
    ...     np.load(Path(folder) / "a.npy").tolist()
    [0, 1, 0, 1, 2]
    """

    def __init__(self, file: Path, dtype: type[np.generic]) -> None:
        self.dtype, self.length = np.dtype(dtype), 0
        self._stream = file.open("wb")
        self._write_header()

    def __len__(self) -> int:
        return self.length

    def __enter__(self) -> "ArrayFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stream:
            if error is None:
                self._stream.seek(0)
                self._write_header()

    def append(self, values: NDArray[np.generic]) -> None:
        """Write values after the others."""
        self._stream.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def _write_header(self) -> None:
        # numpy pads the header so that a longer first axis fits in its place.
        header = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        npy.write_array_header_1_0(self._stream, header)
