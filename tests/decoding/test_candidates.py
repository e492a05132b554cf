"""Length candidates and the selection among decoded candidates."""

from itertools import product

import pytest
import torch
from torch import Tensor

from rdm.decoding.bleu import pairwise_bleu
from rdm.decoding.candidates import (
    BestScore,
    CandidateSet,
    LengthAwareScore,
    LengthChoice,
    MinimumBayesRisk,
    NearLengths,
    TopLengths,
    samples_per_length,
)
from rdm.decoding.routing import Unconditional
from rdm.errors import UserError
from tests.decoding.helpers import make_sampler, seeded
from tests.evaluation.brute_force import sentence_bleu


def test_top_lengths_are_sorted() -> None:
    """The most likely lengths, the best first, without length 0."""
    logits = torch.tensor([[9.0, 1.0, 5.0, 3.0, 4.0], [9.0, 2.0, 1.0, 8.0, 7.0]])
    assert TopLengths()(logits, 3).tolist() == [[2, 4, 3], [3, 4, 1]]


def test_top_lengths_of_random_logits() -> None:
    """Sorted by likelihood, without repetition, and no better length is missing."""
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
        (19, 5, [19, 18, 19, 17, 19]),  # never above the largest length of the length head
    ],
)
def test_near_lengths(best: int, count: int, expected: list[int]) -> None:
    """The most likely length, then -1, +1, -2, +2, clamped."""
    logits = torch.zeros(1, 20)
    logits[0, best] = 1.0
    assert NearLengths()(logits, count).tolist() == [expected]


@pytest.mark.parametrize("choice", [TopLengths(), NearLengths()])
def test_length_zero_is_never_chosen(choice: LengthChoice) -> None:
    """Even if 0 is the most likely length."""
    logits = torch.randn(10, 8, generator=seeded())
    logits[:, 0] = 100.0
    lengths = choice(logits, 5)
    assert lengths.shape == (10, 5)
    assert lengths.min() >= 1
    assert lengths.max() <= 7
    assert torch.equal(lengths[:, 0], logits[:, 1:].argmax(-1) + 1)


@pytest.mark.parametrize(
    ("samples", "lengths", "shares"), [(10, 3, [3, 3, 4]), (1, 3, [1]), (5, 5, [1] * 5), (9, 3, [3, 3, 3]), (4, 1, [4])]
)
def test_samples_per_length(samples: int, lengths: int, shares: list[int]) -> None:
    """3, 3 and 4 as in the paper; with fewer samples than lengths, one each for the most likely lengths."""
    assert samples_per_length(samples, lengths) == shares


def test_candidate_lengths() -> None:
    """Each length is repeated once per sample, the most likely first."""
    logits = torch.tensor([[0.0, 1.0, 5.0, 3.0, 4.0]])
    sampler = make_sampler(Unconditional(), 1, length_candidates=3, samples=10)
    assert sampler.candidate_lengths(logits).tolist() == [[2, 2, 2, 4, 4, 4, 3, 3, 3, 3]]
    assert make_sampler(Unconditional(), 1, length_candidates=3, samples=1).candidate_lengths(logits).tolist() == [[2]]
    assert make_sampler(Unconditional(), 1, length_candidates=2).candidate_lengths(logits).tolist() == [[2, 4]]


def test_best_score() -> None:
    tokens = torch.zeros(2, 3, 1, dtype=torch.long)
    scores = torch.tensor([[-3.0, -1.0, -2.0], [-0.5, -0.6, -0.7]])
    assert BestScore()(CandidateSet(tokens[:, 0], tokens, tokens == 0, scores)).tolist() == [1, 0]


def test_length_aware_score_by_hand() -> None:
    """Score plus weight times the log-probability of the length; weight 0 is the best score."""
    tokens = torch.zeros(2, 3, 1, dtype=torch.long)
    scores = torch.tensor([[-3.0, -1.0, -2.0], [-0.5, -0.6, -0.7]])
    lengths = torch.tensor([[-1.0, -9.0, -1.5], [-2.0, -1.0, -0.5]])
    candidates = CandidateSet(tokens[:, 0], tokens, tokens == 0, scores, lengths)
    for weight in (0.0, 0.05, 0.2, 3.0):
        totals = [[s + weight * n for s, n in zip(*pair, strict=True)] for pair in zip(scores, lengths, strict=True)]
        expected = [max(range(3), key=row.__getitem__) for row in totals]
        assert LengthAwareScore(weight)(candidates).tolist() == expected
    assert LengthAwareScore(0.0)(candidates).tolist() == BestScore()(candidates).tolist()
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match=r"decoding\.selection\.weight must be 0 or above"):
            LengthAwareScore(weight)


def random_candidates(sources: int, candidates: int, words: int) -> tuple[Tensor, Tensor]:
    """Build rows ``<bos> text <eos> <pad> ...`` over few ids, with shared and repeated n-grams; some are empty."""
    tokens = torch.randint(5, 9, (sources, candidates, words), generator=seeded())
    lengths = torch.randint(0, words - 1, (sources, candidates, 1), generator=seeded(1))
    places = torch.arange(words)
    tokens = torch.where(places <= lengths, tokens, 0)
    tokens[..., 0] = 2
    return torch.where(places == lengths + 1, 3, tokens), (tokens >= 5) & (places > 0) & (places <= lengths)


def test_pairwise_bleu_equals_bleu_of_every_pair() -> None:
    """Against a brute-force count of n-grams, including empty, one-word and repetitive sentences."""
    tokens, text = random_candidates(12, 6, 14)
    scores = pairwise_bleu(tokens, text)
    for source in range(12):
        texts = [tokens[source, i][text[source, i]].tolist() for i in range(6)]
        for i, j in product(range(6), repeat=2):
            assert scores[source, i, j].item() == pytest.approx(sentence_bleu(texts[i], [texts[j]]), abs=1e-12)


def test_minimum_bayes_risk_by_brute_force() -> None:
    """The selected candidate has the highest sum of BLEU against the others."""
    tokens, text = random_candidates(20, 7, 12)
    chosen = MinimumBayesRisk()(CandidateSet(tokens[:, 0], tokens, text, torch.zeros(20, 7))).tolist()
    for source, pick in enumerate(chosen):
        texts = [tokens[source, i][text[source, i]].tolist() for i in range(7)]
        gains = [sum(sentence_bleu(texts[i], [texts[j]]) for j in range(7) if j != i) for i in range(7)]
        assert gains[pick] == pytest.approx(max(gains), abs=1e-12)


def test_minimum_bayes_risk_of_one_candidate() -> None:
    tokens, text = random_candidates(4, 1, 6)
    assert MinimumBayesRisk()(CandidateSet(tokens[:, 0], tokens, text, torch.zeros(4, 1))).tolist() == [0, 0, 0, 0]
