"""Timing: medians and their spread, the machine's matrix-product rate, time outside the network, peak memory.

The speed of a machine differs from others and over time. So the rate of a float32 matrix product is measured before and
after every action, and rates are reported per GFLOP/s of it.
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

from rdm.models.network import Restricted

NOISE_THRESHOLD = 0.2  # relative change of the matrix-product rate


def time_repetitions(
    action: Callable[[], object], repetitions: int, after_warm_up: Callable[[], None] = lambda: None
) -> list[float]:
    """Return the seconds of each repetition after a warm-up, which is followed by ``after_warm_up()``."""
    action()
    after_warm_up()
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return seconds


def gemm_rate() -> float:
    """Measure the GFLOP/s of a float32 matrix product of 3072 x 512 by 512 x 1024."""
    a, b = torch.randn(3072, 512), torch.randn(512, 1024)
    return 2 * 3072 * 512 * 1024 / median(time_repetitions(lambda: a @ b, 5)) / 1e9


class Stopwatch:
    """Adds up the time spent in calls; of nested calls only the outermost counts."""

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
        """Run during the forward pass of every module: the network, as opposed to noising, losses and routing."""
        project = Restricted.to_vocabulary  # part of the network, but not a module

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
    """Result of one case: ``rate`` at the median time; ``spread`` is the range of times relative to the median."""

    section: str
    name: str
    unit: str
    rate: float
    spread: float
    gflops_before: float  # rate of the matrix product
    gflops_after: float
    outside: float | None  # share of the time outside the network
    memory: float | None  # peak megabytes of the process

    @property
    def gflops(self) -> float:
        return (self.gflops_before + self.gflops_after) / 2

    @property
    def per_gflops(self) -> float:
        return self.rate / self.gflops

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "gflops": self.gflops, "per_gflops": self.per_gflops}


def time_action(
    section: str, name: str, unit: str, work: float, action: Callable[[Stopwatch], object], repetitions: int
) -> Measurement:
    """Time ``action``, which does ``work`` units; it runs the stopwatch where the network is not called as a module."""
    watch = Stopwatch()
    before = gemm_rate()
    reset_peak_memory()
    with watch.on_modules():
        seconds = time_repetitions(lambda: action(watch), repetitions, watch.reset)
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


def find_noisy(results: list[Measurement]) -> list[Measurement]:
    """Return results whose matrix-product rate changed, or differs from the median, by more than a fifth."""
    typical = median(result.gflops for result in results)

    def is_noisy(result: Measurement) -> bool:
        rates = result.gflops_before, result.gflops_after
        changed = max(rates) - min(rates) > NOISE_THRESHOLD * max(rates)
        return changed or abs(result.gflops - typical) > NOISE_THRESHOLD * typical

    return [result for result in results if is_noisy(result)]


STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak_memory() -> None:
    """Reset the peak that :func:`peak_memory` returns; Linux only."""
    release_free_memory()  # memory freed by earlier, larger models would count otherwise
    if CLEAR.exists():
        CLEAR.write_text("5")


def release_free_memory() -> None:
    """Collect reference cycles, and return free memory that the C library keeps to the system."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


def peak_memory() -> float | None:
    """Return the peak megabytes of this process since :func:`reset_peak_memory`; None where that is unknown."""
    if not CLEAR.exists():
        return None
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
