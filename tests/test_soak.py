"""``scripts/soak.py`` passes steady readings and reports a slow leak."""

import pytest

from scripts.soak import Growth, Reading


def grown(memory: list[int], files: list[int] | None = None) -> Growth:
    return Growth.between([Reading(*pair) for pair in zip(memory, files or [17] * len(memory), strict=True)])


def test_steady_readings_are_no_leak() -> None:
    """The warm-up and a short peak at the end do not count."""
    growth = grown([*range(0, 1000, 10), *[1000] * 300, 5000])
    assert growth.memory == 0
    assert not growth.leaks


@pytest.mark.parametrize(("rate", "leaks"), [(1.01, False), (1.05, True)])
def test_slow_growth_is_a_leak(rate: float, leaks: bool) -> None:
    """Memory grows linearly by ``rate`` over the whole part."""
    assert grown([int(100_000 * (1 + (rate - 1) * i / 400)) for i in range(400)]).leaks == leaks


def test_open_files_are_a_leak() -> None:
    assert grown([1000] * 400, [10 + i // 100 for i in range(400)]).leaks
    assert not grown([1000] * 400, [20 - i // 100 for i in range(400)]).leaks


def test_reading_of_this_process() -> None:
    now = Reading.now()
    assert now.memory > 10 * 2**20
    assert now.files >= 3
