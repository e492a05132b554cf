"""Progress of long preparation: a bar on a terminal, otherwise lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0
"""Interval of the progress lines if there is no terminal."""

Advance = Callable[[int, bool], None]
"""Reports that so many examples more are finished, and whether they were computed now or found."""


@contextmanager
def report_progress(label: str, total: int) -> Iterator[Advance]:
    """Show on standard error how many of ``total`` examples are finished."""
    if not sys.stderr.isatty():
        yield Lines(label, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count, computed: progress.advance(task, count)


class Lines:
    """Prints a line every few seconds: examples finished, rate, and the time left."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total = label, total
        self.finished = self.computed = 0
        self.began = self.reported = time.monotonic()

    def __call__(self, count: int, computed: bool) -> None:
        self.finished += count
        self.computed += count if computed else 0
        now = time.monotonic()
        if now - self.reported < SECONDS_BETWEEN_LINES or not self.computed:
            return
        self.reported = now
        rate = self.computed / (now - self.began)
        seconds = (self.total - self.finished) / rate
        counts = f"{self.finished:,} of {self.total:,} examples, {rate:,.0f}/s, {seconds:,.0f} s left"
        print(f"{self.label}: {counts}", file=sys.stderr, flush=True)
