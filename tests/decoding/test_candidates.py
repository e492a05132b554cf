"""Length candidates and the choice among them."""

import pytest
import torch

from rdm.decoding.candidates import LengthChoice, NearLengths, TopLengths, best_candidate
from tests.decoding.helpers import seeded


def test_top_lengths_are_sorted() -> None:
    """The most likely lengths, the best first; length 0 is never proposed however likely."""
    logits = torch.tensor([[9.0, 1.0, 5.0, 3.0, 4.0], [9.0, 2.0, 1.0, 8.0, 7.0]])
    assert TopLengths()(logits, 3).tolist() == [[2, 4, 3], [3, 4, 1]]


def test_top_lengths_are_sorted_by_likelihood_in_general() -> None:
    """Scores fall along the candidates, no length comes twice, and nothing better was left out."""
    logits = torch.randn(20, 30, generator=seeded())
    chosen = TopLengths()(logits, 7)
    scores = logits.gather(1, chosen)
    rest = logits.clone().scatter(1, chosen, float("-inf"))[:, 1:]
    assert (scores.diff(dim=1) < 0).all()
    assert (scores[:, -1] > rest.max(1).values).all()
    assert (chosen >= 1).all()


@pytest.mark.parametrize(
    ("best", "count", "expected"),
    [
        (10, 5, [10, 9, 11, 8, 12]),
        (10, 1, [10]),
        (10, 2, [10, 9]),
        (1, 5, [1, 1, 2, 1, 3]),  # never below 1
        (19, 5, [19, 18, 19, 17, 19]),  # never above what the length head knows
    ],
)
def test_near_lengths(best: int, count: int, expected: list[int]) -> None:
    """The best length, then -1, +1, -2, +2, clamped."""
    logits = torch.zeros(1, 20)
    logits[0, best] = 1.0
    assert NearLengths()(logits, count).tolist() == [expected]


@pytest.mark.parametrize("choice", [TopLengths(), NearLengths()])
def test_zero_is_never_proposed(choice: LengthChoice) -> None:
    """Even where 0 is by far the likeliest length."""
    logits = torch.randn(10, 8, generator=seeded())
    logits[:, 0] = 100.0
    lengths = choice(logits, 5)
    assert lengths.shape == (10, 5)
    assert lengths.min() >= 1
    assert lengths.max() <= 7
    assert torch.equal(lengths[:, 0], logits[:, 1:].argmax(-1) + 1)


def test_best_candidate() -> None:
    """The row of the best score among each sentence's consecutive candidates."""
    scores = torch.tensor([-3.0, -1.0, -2.0, -0.5, -0.6, -0.7, -9.0, -8.0, -7.0])
    assert best_candidate(scores, 3).tolist() == [1, 3, 8]
    assert best_candidate(scores, 1).tolist() == list(range(9))
    assert best_candidate(scores, 9).tolist() == [3]
