"""One decoding at a time."""

import asyncio
import doctest
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rdm.playground import decoding_queue, protection
from rdm.playground.decoding_queue import DecodingQueue, Finished, QueueFull, Started, Waiting


async def collect(queue: DecodingQueue, work: Callable[[], Any]) -> list[Any]:
    return [state async for state in queue.run(work)]


def test_decodings_run_one_at_a_time_in_order() -> None:
    """Those behind the running one learn their place whenever it changes; a full queue refuses the next."""
    running, order, most = 0, [], 0
    gate = threading.Event()

    def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        gate.wait(10)
        order.append(number)
        running -= 1
        return number

    async def ask_four() -> list[Any]:
        queue = DecodingQueue(limit=2)
        tasks = [asyncio.create_task(collect(queue, lambda number=number: work(number))) for number in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(QueueFull):
            await collect(queue, lambda: work(3))
        gate.set()
        states = await asyncio.gather(*tasks)
        assert len(queue) == 0
        return states

    first, second, third = asyncio.run(ask_four())
    assert first == [Started(), Finished(0)]
    assert second == [Waiting(1), Started(), Finished(1)]
    assert third == [Waiting(2), Waiting(1), Started(), Finished(2)]
    assert (order, most) == ([0, 1, 2], 1)


def test_abandoned_decodings_leave_the_queue() -> None:
    """One that waits never runs; one that runs ends before the next starts."""
    ran, gate = [], threading.Event()

    def slow() -> None:
        gate.wait(10)
        ran.append("slow")

    async def abandon() -> list[Any]:
        queue = DecodingQueue(limit=2)
        running = asyncio.create_task(collect(queue, slow))
        waiting = asyncio.create_task(collect(queue, lambda: ran.append("waiting")))
        last = asyncio.create_task(collect(queue, lambda: ran.append("last")))
        await asyncio.sleep(0.05)
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        assert len(queue) == 2
        assert not last.done()
        gate.set()
        return await last

    assert asyncio.run(abandon()) == [Waiting(2), Waiting(1), Started(), Finished(None)]
    assert ran == ["slow", "last"]


def test_error_of_a_decoding_does_not_stop_the_next() -> None:
    async def fail_then_run() -> list[Any]:
        queue = DecodingQueue(limit=1)
        with pytest.raises(ZeroDivisionError):
            await collect(queue, lambda: 1 // 0)
        return await collect(queue, lambda: 1)

    assert asyncio.run(fail_then_run())[-1] == Finished(1)


def test_examples_in_docstrings() -> None:
    for module in (decoding_queue, protection):
        results = doctest.testmod(module)
        assert results.attempted > 0
        assert results.failed == 0
