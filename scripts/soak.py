"""Leak test: ``make soak`` trains, validates, decodes and evaluates for 30 minutes in one process.

- The first half is one long training run that validates, samples and saves, which shows leaks within a run. Memory and
  open files are read once a second.
- The second half is short runs of several systems, each trained, evaluated and decoded by the real scripts and then
  deleted, which shows leaks between runs. Memory is read after each round, when free memory has been returned to the
  system; what the C library keeps varies by tens of megabytes.

Exit code 1 if memory grows by 2% or more, or if files are left open.
"""

import argparse
import io
import os
import runpy
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from rdm.bench.timing import release_free_memory

ROOT = Path(__file__).parent.parent
ALLOWED_GROWTH = 0.02
WARM_UP = 0.25  # share of each part that is ignored: caches and the allocator reach their size
WINDOW = 0.25  # share of the rest: the first and the last window are compared

SMALL = [
    "data.corpus.train_size=1000",
    "data.corpus.valid_size=20",
    "data.corpus.test_size=20",
    "data.max_tokens=1024",
    "callbacks.progress=null",
    "callbacks.sampling.sentences=10",
    "trainer.val_check_interval=10",
]
SYSTEMS = [
    ["diffusion=rdm_absorbing"],
    ["diffusion=multinomial"],
    ["system=ar"],
    ["system=diffuseq", "decoding.steps=5"],
    ["system=lm", "decoding.steps=5"],
]


@dataclass(frozen=True)
class Reading:
    """Memory and open files of this process at one time."""

    memory: int  # resident bytes
    files: int  # open descriptors

    @classmethod
    def now(cls) -> "Reading":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")))


@dataclass(frozen=True)
class Growth:
    """Median readings of a part after its warm-up and at its end."""

    early: Reading
    late: Reading

    @classmethod
    def between(cls, readings: list[Reading]) -> "Growth":
        warm = readings[int(WARM_UP * len(readings)) :]
        count = max(int(WINDOW * len(warm)), 1)
        return cls(median_reading(warm[:count]), median_reading(warm[-count:]))

    @property
    def memory(self) -> float:
        return self.late.memory / self.early.memory - 1

    @property
    def leaks(self) -> bool:
        return self.memory >= ALLOWED_GROWTH or self.late.files > self.early.files


def median_reading(readings: list[Reading]) -> Reading:
    """Return the medians: writing a checkpoint needs memory and an open file for a short time."""
    return Reading(int(median(r.memory for r in readings)), int(median(r.files for r in readings)))


@contextmanager
def read_every_second() -> Iterator[list[Reading]]:
    """Collect a reading per second while the block runs."""
    readings, done = [Reading.now()], threading.Event()

    def read() -> None:
        while not done.wait(1):
            readings.append(Reading.now())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield readings
    finally:
        done.set()
        reader.join()


def script(name: str, *overrides: str) -> None:
    """Run a script with ``overrides`` in this process; its output is printed only if it fails."""
    sys.argv = [name, *overrides]
    output = io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(output):
            runpy.run_path(str(ROOT / name), run_name="__main__")
    except BaseException:
        sys.stderr.write(output.getvalue())
        raise


def one_long_run(folder: Path, seconds: float) -> tuple[str, list[Reading]]:
    """Train one run for ``seconds``."""
    limit = time.strftime("00:%H:%M:%S", time.gmtime(seconds))
    with read_every_second() as readings:
        script("train.py", *SMALL, f"hydra.run.dir={folder}", "trainer.max_steps=-1", f"+trainer.max_time='{limit}'")
    validations = len(list((folder / "samples").iterdir()))
    return f"one run, {validations} validations", readings


def many_short_runs(folder: Path, seconds: float) -> tuple[str, list[Reading]]:
    """Train, evaluate and decode each system in turn until ``seconds`` have passed; one reading per round."""
    end, readings = time.monotonic() + seconds, []
    while time.monotonic() < end:
        for overrides in SYSTEMS:
            script("train.py", *SMALL, *overrides, "trainer.max_steps=20", f"hydra.run.dir={folder}")
            script("evaluate.py", f"ckpt={folder}", "limit=10")
            script("generate.py", f"ckpt={folder}", "trace=true")
            shutil.rmtree(folder)
        release_free_memory()
        readings.append(Reading.now())
    return f"{len(readings) * len(SYSTEMS)} short runs", readings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    seconds = 60 * parser.parse_args().minutes / 2
    table = Table(title="Medians after the warm-up and at the end")
    for column in ("part", "readings", "MiB", "at the end", "growth", "files", "at the end"):
        table.add_column(column, justify="left" if column == "part" else "right")
    leaks = False
    with TemporaryDirectory() as folder:
        for part in (one_long_run, many_short_runs):
            name, readings = part(Path(folder) / part.__name__, seconds)
            growth = Growth.between(readings)
            leaks |= growth.leaks
            memory = [f"{reading.memory / 2**20:.1f}" for reading in (growth.early, growth.late)]
            files = [str(reading.files) for reading in (growth.early, growth.late)]
            table.add_row(name, str(len(readings)), *memory, f"{growth.memory:+.2%}", *files)
    Console(width=100).print(table)
    print("leaks" if leaks else f"no leak: memory grew by less than {ALLOWED_GROWTH:.0%}, no file left open")
    return int(leaks)


if __name__ == "__main__":
    sys.exit(main())
