"""How the C library gives memory back to the operating system."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
KEPT = 1 << 30  # bytes


def keep_freed_memory() -> None:
    """Let the process keep up to a gigabyte of freed memory instead of returning it to the system.

    glibc maps every block above 32 MB anew, and the system clears its pages. Logits are such blocks (2,048 positions
    and 6,000 words are 49 MB), and clearing them costs as much as a softmax. Elsewhere it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT)
        mallopt(M_TRIM_THRESHOLD, KEPT)
