"""The verdict of ``scripts/soak.py``: steady readings pass, a slow leak does not."""

import pytest

from scripts.soak import Growth, Reading


def grown(memory: list[int], files: list[int] | None = None) -> Growth:
    return Growth.of([Reading(*pair) for pair in zip(memory, files or [17] * len(memory), strict=True)])


def test_steady() -> None:
    """The warm-up does not count, nor does a moment's peak at the end."""
    growth = grown([*range(0, 1000, 10), *[1000] * 300, 5000])
    assert growth.memory == 0
    assert not growth.leaks


@pytest.mark.parametrize(("rate", "leaks"), [(1.01, False), (1.05, True)])
def test_slow_growth(rate: float, leaks: bool) -> None:
    """From the beginning to the end by ``rate``."""
    assert grown([int(100_000 * (1 + (rate - 1) * i / 400)) for i in range(400)]).leaks == leaks


def test_files_left_open() -> None:
    assert grown([1000] * 400, [10 + i // 100 for i in range(400)]).leaks
    assert not grown([1000] * 400, [20 - i // 100 for i in range(400)]).leaks


def test_this_process() -> None:
    now = Reading.now()
    assert now.memory > 10 * 2**20
    assert now.files >= 3
