"""Proposals: argmax, sampling with temperature and nucleus, scores."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm import cross_entropy
from rdm.cross_entropy import rows_at_once
from rdm.decoding.proposal import Proposal, sample_ids
from rdm.errors import UserError
from rdm.models.network import BARRED
from tests.decoding.helpers import p_value, seeded

PROBS = np.array([0.4, 0.1, 0.3, 0.2])
DRAWS = 20_000


def logits_of(probs: np.ndarray, rows: int = DRAWS) -> torch.Tensor:
    return torch.from_numpy(probs).log().float().expand(rows, -1)


def tempered(probs: np.ndarray, temperature: float) -> np.ndarray:
    weights = probs ** (1 / temperature)
    return weights / weights.sum()


@pytest.mark.parametrize("top_p", [1.0, 0.5])
def test_argmax_at_temperature_zero(top_p: float) -> None:
    """Temperature 0 takes the most likely id."""
    logits = torch.randn(50, 7, generator=seeded())
    tokens, _ = Proposal(temperature=0.0, top_p=top_p)(logits, generator=seeded())
    assert tokens.tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_samples_follow_the_tempered_distribution(temperature: float) -> None:
    """Samples follow softmax(logits / temperature), and not that of a different temperature."""
    tokens, _ = Proposal(temperature)(logits_of(PROBS), generator=seeded(1))
    assert p_value(tokens, tempered(PROBS, temperature)) > 1e-3
    assert p_value(tokens, tempered(PROBS, temperature * 1.4)) < 1e-6


def test_rows_are_sampled_independently() -> None:
    """Each row follows its own logits, independently of the others."""
    table = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]])
    logits = torch.from_numpy(np.log(table)).repeat(DRAWS, 1)
    tokens, _ = Proposal(1.0)(logits, generator=seeded(2))
    first, second = tokens.view(-1, 2).unbind(1)
    assert p_value(first * 4 + second, np.outer(*table)) > 1e-3


@pytest.mark.parametrize("rare", [1e-4, 2e-5])
def test_tail_is_not_truncated(rare: float) -> None:
    """The frequency of a rare id is within four standard deviations of its probability."""
    draws = 2_000_000
    tokens = sample_ids(logits_of(np.array([1 - rare, rare]), draws), 1.0, generator=seeded(3))
    expected = draws * rare
    assert abs(int(tokens.sum()) - expected) < 4 * expected**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sampling_uses_float64_for_any_logits(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the uniform samples and the cumulative probabilities (too rare an effect to test by frequency)."""
    seen, search = [], torch.searchsorted

    def spy(mass: torch.Tensor, drawn: torch.Tensor, **options: Any) -> torch.Tensor:
        seen.extend([mass.dtype, drawn.dtype])
        return search(mass, drawn, **options)

    monkeypatch.setattr(torch, "searchsorted", spy)
    sample_ids(torch.zeros(3, 5, dtype=dtype), 0.7, generator=seeded())
    assert seen == [torch.float64, torch.float64]


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_barred_ids_are_never_sampled(top_p: float, uniform: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At both ends of the uniform distribution, with barred ids first, in between and last."""
    monkeypatch.setattr(torch, "rand", lambda *shape, dtype, **_: torch.full(*shape, uniform, dtype=dtype))
    logits = torch.tensor([[BARRED, 0.0, BARRED, 1.0, BARRED]])
    assert sample_ids(logits, 1.0, top_p).item() == (1 if uniform == 0 else 3)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_logits_give_valid_ids(value: float, top_p: float) -> None:
    """An overflow in one sentence must not end the run."""
    logits = torch.zeros(2, 5)
    logits[0] = value
    assert (sample_ids(logits, 1.0, top_p, seeded()) < 5).all()


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1e-6, [0]), (0.39, [0]), (0.41, [0, 2]), (0.69, [0, 2]), (0.71, [0, 2, 3]), (0.91, [0, 1, 2, 3])],
)
def test_nucleus_is_the_smallest_set(top_p: float, kept: list[int]) -> None:
    """Samples come from the smallest set of most likely ids with mass at least top_p, renormalised."""
    tokens, _ = Proposal(1.0, top_p=top_p)(logits_of(PROBS), generator=seeded(5))
    assert sorted(tokens.unique().tolist()) == kept
    inside = np.zeros(4)
    inside[kept] = PROBS[kept]
    assert p_value(tokens, inside) > 1e-3


def test_nucleus_at_the_boundary() -> None:
    """Two of four equal ids have a mass of exactly 0.5, so no third one is sampled."""
    tokens = sample_ids(torch.zeros(1000, 4), 1.0, top_p=0.5, generator=seeded())
    assert len(tokens.unique()) == 2


def test_nucleus_applies_after_the_temperature() -> None:
    """The two most likely ids of PROBS have mass 0.83 at temperature 0.5 and 0.7 at temperature 1."""
    assert sample_ids(logits_of(PROBS), 0.5, top_p=0.8, generator=seeded()).unique().tolist() == [0, 2]
    assert sample_ids(logits_of(PROBS), 1.0, top_p=0.8, generator=seeded()).unique().tolist() == [0, 2, 3]


@settings(deadline=None, derandomize=True)
@given(
    logits=st.lists(st.floats(-8, 8), min_size=2, max_size=12),
    top_p=st.floats(0.01, 0.99),
    temperature=st.floats(0.2, 3),
)
def test_sampled_ids_are_in_the_nucleus(logits: list[float], top_p: float, temperature: float) -> None:
    """The mass of strictly more likely ids is below top_p."""
    scaled = torch.tensor(logits, dtype=torch.float64)
    probs = (scaled / temperature).softmax(-1)
    for token in sample_ids(scaled.expand(64, -1), temperature, top_p, seeded()).unique():
        assert probs[probs > probs[token]].sum() < top_p + 1e-9


def test_linear_annealing() -> None:
    """From ``temperature`` to ``final_temperature``; None keeps it constant."""
    proposal = Proposal(temperature=2.0, final_temperature=0.5)
    assert [proposal.temperature_at(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([2.0, 1.25, 0.5])
    assert Proposal(0.7).temperature_at(1.0) == 0.7
    for progress, temperature in ((0.0, 2.0), (1.0, 0.5)):
        tokens, _ = proposal(logits_of(PROBS), progress, seeded(6))
        assert p_value(tokens, tempered(PROBS, temperature)) > 1e-3


@pytest.mark.parametrize("start", [0.1, 0.3, 1.0, 1.7])
def test_annealing_to_zero_ends_with_argmax(start: float) -> None:
    """A final temperature of 0 is exactly the argmax."""
    proposal, logits = Proposal(start, final_temperature=0.0), torch.randn(200, 5, generator=seeded())
    assert proposal.temperature_at(1.0) == 0
    assert torch.equal(proposal(logits, 1.0, seeded())[0], logits.argmax(-1))


@pytest.mark.parametrize("options", [{}, {"temperature": 0.3}, {"temperature": 2.0, "top_p": 0.6}])
def test_score_is_the_log_probability_of_the_model(options: dict[str, float]) -> None:
    """Independent of temperature and nucleus."""
    logits = 3 * torch.randn(100, 6, generator=seeded())
    tokens, scores = Proposal(**options)(logits, generator=seeded())
    expected = logits.log_softmax(-1)[torch.arange(100), tokens]
    torch.testing.assert_close(scores, expected)
    assert scores.dtype == torch.float32


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": 1.0, "final_temperature": -1.0},
        {"top_p": 0.0},
        {"top_p": -0.5},
        {"top_p": 1.01},
    ],
)
def test_invalid_arguments(options: dict[str, float]) -> None:
    with pytest.raises(UserError):
        Proposal(**options)


def test_reproducible_by_seed() -> None:
    """Equal seeds give equal tokens, different seeds different ones."""
    logits = torch.zeros(100, 6)
    first, again, other = (Proposal(1.0)(logits, generator=seeded(seed))[0].tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_scores_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(11, 30, generator=torch.Generator().manual_seed(0))
    tokens, expected = Proposal()(logits)
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK", 4 * 30)
    assert torch.equal(Proposal()(logits)[1], expected)
    torch.testing.assert_close(expected, logits.log_softmax(-1).gather(1, tokens[:, None]).squeeze(1))


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_sampling_more_rows_than_a_chunk(top_p: float) -> None:
    rows = 2 * rows_at_once(torch.empty(1, 4000)) + 3
    wanted = torch.randint(4000, (rows,), generator=seeded())
    logits = torch.zeros(rows, 4000).scatter_(1, wanted[:, None], 50.0)
    assert sample_ids(logits, 1.0, top_p, seeded()).equal(wanted)
