"""Edits: alignment against brute force on all short strings, and their application."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.edits import align, count_insertions, insert_placeholders, keep_tokens

PAD, MASK = 0, 1
STRINGS = [text for length in range(5) for text in itertools.product((5, 6, 7), repeat=length)]


def common_subsequence(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """The length of the longest common subsequence, by trying all subsequences."""
    for size in range(min(len(first), len(second)), -1, -1):
        if {*itertools.combinations(first, size)} & {*itertools.combinations(second, size)}:
            return size
    raise AssertionError


def padded(texts: list[tuple[int, ...]], width: int) -> torch.Tensor:
    return torch.tensor([[*text, *[PAD] * (width - len(text))] for text in texts])


def test_alignment_equals_brute_force_on_all_short_strings() -> None:
    """The aligned tokens are a common subsequence, and none is longer; so the oracle's edits are the fewest."""
    pairs = list(itertools.product(STRINGS, repeat=2))
    assert len(pairs) == (1 + 3 + 9 + 27 + 81) ** 2
    longest = {pair: common_subsequence(*pair) for pair in pairs}
    first, second = padded([a for a, _ in pairs], 6), padded([b for _, b in pairs], 5)
    kept, aligned = align(first, second, PAD)
    for row, (a, b) in enumerate(pairs):
        left = [token for token, keep in zip(first[row].tolist(), kept[row].tolist(), strict=True) if keep]
        right = [token for token, keep in zip(second[row].tolist(), aligned[row].tolist(), strict=True) if keep]
        assert left == right
        assert len(left) == longest[a, b]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.lists(st.integers(5, 8), max_size=7)] * 2), min_size=1, max_size=5))
def test_the_oracle_reproduces_the_target(pairs: list[tuple[list[int], list[int]]]) -> None:
    """Its deletions, then its placeholders, then its tokens."""
    first = padded([(2, *a, 3) for a, _ in pairs], 9)
    gold = padded([(2, *b, 3) for _, b in pairs], 10)
    kept, aligned = align(first, gold, PAD)
    assert kept[(first == 2) | (first == 3)].all()
    shorter, origin = keep_tokens(first, kept, PAD)
    counts = count_insertions(aligned, gold != PAD, shorter.shape[1])
    longer, _ = insert_placeholders(shorter, counts, 10, MASK, PAD)
    width = longer.shape[1]
    assert torch.equal(longer != PAD, (gold != PAD)[:, :width])
    assert not (gold[:, width:] != PAD).any()
    assert torch.equal(longer == MASK, ((gold != PAD) & ~aligned)[:, :width])
    filled = torch.where(longer == MASK, gold[:, :width], longer)
    assert torch.equal(filled, gold[:, :width])
    for row in range(len(pairs)):
        for token, column in zip(shorter[row].tolist(), origin[row].tolist(), strict=True):
            assert (token == PAD and column == -1) or token == int(first[row, column])


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (9, [2, MASK, MASK, 5, MASK, 3]),
        (5, [2, MASK, MASK, 5, 3]),
        (4, [2, MASK, 5, 3]),
        (3, [2, 5, 3]),
        (2, [2, 5, 3]),  # tokens are never removed
    ],
)
def test_placeholders_are_limited(longest: int, expected: list[int]) -> None:
    tokens, counts = torch.tensor([[2, 5, 3, PAD]]), torch.tensor([[2, 1, 7]])
    longer, origin = insert_placeholders(tokens, counts, longest, MASK, PAD)
    assert longer[0].tolist() == expected
    assert [column for column in origin[0].tolist() if column >= 0] == [0, 1, 2]
