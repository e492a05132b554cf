"""The benchmark measures, shows and draws; its clock and its memory are checked by hand."""

import pytest

from rdm.bench import measure
from rdm.bench.measure import forget_peak_memory, peak_memory


@pytest.mark.skipif(not measure.CLEAR.exists(), reason="needs the memory counters of Linux")
def test_memory_that_is_free_again_is_forgotten() -> None:
    """What a larger model has left behind is not held by the next."""
    forget_peak_memory()
    before = peak_memory()
    blocks = [bytearray(50_000) for _ in range(4000)]
    last = blocks.pop()  # on top of the heap: the C library returns nothing below it by itself
    full = peak_memory()
    del blocks
    forget_peak_memory()
    assert full - before > 150
    assert peak_memory() - before < 20
    del last
