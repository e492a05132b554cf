"""Results for many texts, computed in batches that can be skipped, stored and resumed independently."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Protocol, TypeVar

from rich.console import Console
from rich.progress import track

from rdm.errors import require

Result = TypeVar("Result")
SECONDS_BETWEEN_LINES = 10.0
"""Interval of the progress lines if there is no terminal."""


class Store(Protocol):
    """Keeps the results of finished batches as plain data; see :class:`rdm.evaluation.resumable.ResumableResults`."""

    done: dict[int, list[dict[str, Any]]]  # results of earlier commands, by the number of the batch

    def add(self, number: int, rows: list[dict[str, Any]]) -> None:
        """Store the results of batch ``number``."""


@dataclass(frozen=True)
class BatchedWork(Generic[Result]):
    """Computes one result for each of several texts, in batches; empty texts have none.

    Args:
        count: number of texts.
        batches: indices of the texts of each batch.
        compute: returns the results of a batch, given its number; they depend on nothing but that number.
        restore: makes a result from its fields as plain data.
    """

    count: int
    batches: list[list[int]]
    compute: Callable[[int], Sequence[Result]]
    restore: Callable[[Mapping[str, Any]], Result]

    def run(self, store: Store | None = None, label: str | None = None) -> list[Result | None]:
        """Return the results in the order of the texts; None for empty texts.

        Args:
            store: holds finished batches, which are not computed again, and receives the others.
            label: heading of the progress report on standard error; None shows none.
        """
        results: list[Result | None] = [None] * self.count
        done = {} if store is None else store.done
        for number, rows in done.items():
            for index, row in zip(self.batches[number], rows, strict=True):
                results[index] = self.restore(row)
        missing = [number for number in range(len(self.batches)) if number not in done]
        for number in missing if label is None else self._reported(missing, label):
            computed = self.compute(number)
            for index, result in zip(self.batches[number], computed, strict=True):
                results[index] = result
            if store is not None:
                store.add(number, [asdict(result) for result in computed])  # type: ignore[call-overload]
        return results

    def _reported(self, missing: Sequence[int], label: str) -> Iterable[int]:
        if sys.stderr.isatty():
            return track(missing, label, console=Console(stderr=True))
        return self._with_lines(missing, label)

    def _with_lines(self, missing: Sequence[int], label: str) -> Iterator[int]:
        """Yield batch numbers; print a line to standard error every few seconds and at the end."""
        total = sum(len(batch) for batch in self.batches)
        before = total - sum(len(self.batches[number]) for number in missing)
        finished, began = before, time.monotonic()
        reported = began
        for number in missing:
            yield number
            finished += len(self.batches[number])
            now = time.monotonic()
            if now - reported >= SECONDS_BETWEEN_LINES or finished == total:
                rate = (finished - before) / max(now - began, 1e-9)
                remaining = round((total - finished) / rate)
                report = f"{finished} of {total} texts, {rate:.3g} texts/s, {remaining} s left"
                print(f"{label}: {report}", file=sys.stderr, flush=True)
                reported = now


def batches_by_length(
    lengths: Mapping[int, tuple[int, ...]], batch_size: int, equal_lengths: bool = False
) -> list[list[int]]:
    """Distribute texts over batches of similar length, the longest first.

    >>> lengths = {0: (3,), 2: (5,), 3: (3,)}
    >>> batches_by_length(lengths, batch_size=2), batches_by_length(lengths, 2, equal_lengths=True)
    ([[2, 0], [3]], [[2], [0, 3]])

    Args:
        lengths: lengths of each text (source, target) by its index; the first ones matter most.
        batch_size: maximum number of texts per batch.
        equal_lengths: whether all texts of a batch must have the same length.
    """
    require(batch_size >= 1, f"batch_size must be at least 1, got {batch_size}")
    batches: list[list[int]] = []
    for index in sorted(lengths, key=lambda index: lengths[index], reverse=True):
        last = batches[-1] if batches else []
        fits = 0 < len(last) < batch_size and not (equal_lengths and lengths[last[0]] != lengths[index])
        if fits:
            last.append(index)
        else:
            batches.append([index])
    return batches
