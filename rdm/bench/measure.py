"""Measuring: medians with their spread, the machine's own rate, time outside the network, peak memory.

Machines differ and so do moments. So the rate of a float32 matrix product is measured before and after every action,
and rates are given per GFLOP/s of it.
"""

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from rdm.models.layers import Restricted

NOISY = 0.2


def times(action: Callable[[], object], repetitions: int, warm: Callable[[], None] = lambda: None) -> list[float]:
    """Seconds of each repetition, after one to warm up; ``warm`` is told when that is over."""
    action()
    warm()
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return seconds


def gemm_rate() -> float:
    """GFLOP/s of a product of 3072 x 512 by 512 x 1024."""
    a, b = torch.randn(3072, 512), torch.randn(512, 1024)
    return 2 * 3072 * 512 * 1024 / median(times(lambda: a @ b, 5)) / 1e9


class Stopwatch:
    """Adds up the time spent in certain calls, of nested ones only the outermost."""

    def __init__(self) -> None:
        self.seconds, self.depth, self.began = 0.0, 0, 0.0

    def reset(self) -> None:
        self.seconds = 0.0

    def start(self, *_: Any) -> None:
        if self.depth == 0:
            self.began = time.perf_counter()
        self.depth += 1

    def stop(self, *_: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.perf_counter() - self.began

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        yield
        self.stop()

    @contextmanager
    def on_modules(self) -> Iterator[None]:
        """Runs whenever a module does: the network, as opposed to noising, losses and routing."""
        project = Restricted.to_vocabulary  # part of the network, but no module

        def to_vocabulary(network: Restricted, states: Tensor) -> Tensor:
            with self.running():
                return project(network, states)

        hooks = [register_module_forward_pre_hook(self.start), register_module_forward_hook(self.stop)]
        Restricted.to_vocabulary = to_vocabulary  # type: ignore[method-assign, assignment]
        yield
        Restricted.to_vocabulary = project  # type: ignore[method-assign]
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class Measurement:
    """``rate`` is work done in the median time; ``spread`` the range of the times, as a share of it."""

    section: str
    name: str
    unit: str
    rate: float
    spread: float
    gflops_before: float  # of the matrix product
    gflops_after: float
    outside: float | None  # share of the time that is not the network's
    memory: float | None  # most megabytes the process held

    @property
    def gflops(self) -> float:
        return (self.gflops_before + self.gflops_after) / 2

    @property
    def per_gflops(self) -> float:
        return self.rate / self.gflops

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "gflops": self.gflops, "per_gflops": self.per_gflops}


def measure(
    section: str, name: str, unit: str, work: float, action: Callable[[Stopwatch], object], repetitions: int
) -> Measurement:
    """Repeat ``action``, which does ``work`` units; it may run the stopwatch where the network works unseen."""
    watch = Stopwatch()
    before = gemm_rate()
    forget_peak_memory()
    with watch.on_modules():
        seconds = times(lambda: action(watch), repetitions, watch.reset)
    return Measurement(
        section=section,
        name=name,
        unit=unit,
        rate=work / median(seconds),
        spread=(max(seconds) - min(seconds)) / median(seconds),
        gflops_before=before,
        gflops_after=gemm_rate(),
        outside=1 - watch.seconds / sum(seconds) if watch.seconds else None,
        memory=peak_memory(),
    )


def noisy(results: list[Measurement]) -> list[Measurement]:
    """Those around which the matrix product changed by more than a fifth, or was so far from the median of them all."""
    typical = median(result.gflops for result in results)
    return [
        result
        for result in results
        if abs(result.gflops_before - result.gflops_after) > NOISY * max(result.gflops_before, result.gflops_after)
        or abs(result.gflops - typical) > NOISY * typical
    ]


STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak_memory() -> None:
    """Linux only, like :func:`peak_memory`."""
    settle()  # what larger models before this one have left free would count as held
    if CLEAR.exists():
        CLEAR.write_text("5")


def settle() -> None:
    """Give back what is free already: objects in cycles, and memory that the C library keeps for the next request."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def peak_memory() -> float | None:
    """The most megabytes this process has held since :func:`forget_peak_memory`; None where that is not known."""
    if not CLEAR.exists():
        return None
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
