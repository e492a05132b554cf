"""One decoding at a time: the others wait in the order of their arrival."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")


class QueueFull(Exception):
    """Too many decodings are waiting."""


@dataclass(frozen=True)
class Waiting:
    """The state of a decoding before it starts: how many are before it, the running one included."""

    ahead: int


@dataclass(frozen=True)
class Started:
    """The state of a decoding that runs."""


@dataclass(frozen=True)
class Finished(Generic[Result]):
    """The result of a decoding."""

    result: Result


class DecodingQueue:
    """Runs functions one at a time in a thread; used from one event loop.

    Args:
        limit: number of functions that may wait.

    >>> async def states():
    ...     return [state async for state in DecodingQueue(limit=4).run(lambda: 7)]
    >>> asyncio.run(states())
    [Started(), Finished(result=7)]
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._line: list[object] = []  # the running one, then those that wait
        self._changed = asyncio.Event()  # replaced whenever the line moves
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decoding")

    def __len__(self) -> int:
        """Return the number of functions that run or wait."""
        return len(self._line)

    async def run(self, work: Callable[[], Result]) -> AsyncIterator[Waiting | Started | Finished[Result]]:
        """Yield the place in the line whenever it changes, then the start and the result of ``work``.

        Closing the iterator takes ``work`` out of the line. If it has started, it ends before the next one starts.

        Raises:
            QueueFull: before the first state, if ``limit`` others wait.
        """
        if len(self._line) > self.limit:
            raise QueueFull
        ticket, future, loop = object(), None, asyncio.get_running_loop()
        self._line.append(ticket)
        try:
            while self._line[0] is not ticket:
                yield Waiting(self._line.index(ticket))
                await self._changed.wait()
            yield Started()
            future = self._thread.submit(work)

            def done(_: Future[Result]) -> None:  # called by the thread
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._leave, ticket)

            future.add_done_callback(done)
            yield Finished(await asyncio.wrap_future(future))
        finally:
            if future is None:
                self._leave(ticket)

    def _leave(self, ticket: object) -> None:
        self._line.remove(ticket)
        self._changed.set()
        self._changed = asyncio.Event()
