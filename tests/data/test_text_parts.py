"""Samples and chunks of texts."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.data.text_parts import cut, sample_texts

texts = st.lists(st.text(max_size=9), max_size=60)


@given(texts=texts, limit=st.integers(1, 100))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_a_sample_is_bounded_and_keeps_the_order(texts: list[str], limit: int) -> None:
    numbered = [f"{number}:{text}" for number, text in enumerate(texts)]
    sample = sample_texts(iter(numbered), limit)
    assert sample == sample_texts(numbered, limit)
    assert [text for text in numbered if text in set(sample)] == sample
    assert sum(map(len, sample)) <= limit or len(sample) == 1
    if sum(map(len, numbered)) <= limit:
        assert sample == numbered


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_sample_is_spread_evenly(columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Over the text, and over its columns, which alternate."""
    sample = [int(text) for text in sample_texts((f"{number:06d}" for number in range(100_000)), limit=60_000)]
    assert 4_000 < len(sample) <= 10_000
    for column in range(columns):
        share = sum(number % columns == column for number in sample) / len(sample)
        assert share == pytest.approx(1 / columns, rel=0.02)
    tenths = [sum(number // 10_000 == tenth for number in sample) for tenth in range(10)]
    assert max(tenths) - min(tenths) <= 10
    expected = f"a sample: {len(sample):,} of 100,000 texts, {6 * len(sample):,} characters\n"
    assert capsys.readouterr().err.endswith(expected)


@given(items=st.lists(st.integers(0, 9)), most=st.integers(1, 5), largest=st.integers(1, 20))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_parts_are_within_the_limits(items: list[int], most: int, largest: int) -> None:
    """Every part but the last is full; it exceeds the size by its last item at most."""
    parts = list(cut(iter(items), int, most, largest))
    assert list(chain(*parts)) == items
    for number, part in enumerate(parts):
        assert 0 < len(part) <= most
        assert sum(part[:-1]) < largest
        assert number == len(parts) - 1 or len(part) == most or sum(part) >= largest
