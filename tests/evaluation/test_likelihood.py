"""Likelihood metrics of whole systems."""

import math

import pytest
import torch

from rdm.evaluation.likelihood import likelihood_metrics, ratio
from rdm.systems.base import System
from tests.builders import RECIPES, batch_of, tiny_system, toy_data

KINDS = {name: "surrogate" if name in ("rdm_multinomial", "rdm_mixture") else "bound" for name in RECIPES}


def test_ratio_by_hand() -> None:
    """3 and 9 nats over 1 and 2 tokens: 4 per token; residuals -1 and 1, so the error is sqrt(2 * 2 / 1) / 3."""
    mean, error = ratio(torch.tensor([3.0, 9.0]), torch.tensor([1, 2]))
    assert mean == pytest.approx(4)
    assert error == pytest.approx(2 / 3)
    assert ratio(torch.tensor([3.0]), torch.tensor([2])) == (1.5, None)


def test_standard_error_matches_repeated_samples() -> None:
    """It agrees with the standard deviation of repeated estimates within 20 %."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, 15, (400, 200), generator=generator)
    nats = 2.0 * tokens + 3 * torch.randn(400, 200, generator=generator)
    results = [ratio(n, t) for n, t in zip(nats, tokens, strict=True)]
    spread = torch.tensor([mean for mean, _ in results]).std().item()
    assert sum(float(error or 0) for _, error in results) / 400 == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize("name", RECIPES)
def test_metrics_of_every_system(name: str) -> None:
    """The signature names the kind of likelihood, and bits are nats / log 2."""
    torch.manual_seed(0)
    data = toy_data()
    system = tiny_system(data.vocab, name).eval()
    nats, bits = likelihood_metrics(system, data, "test", 6, batch_size=4, draws=3, seed=1)
    assert nats.signature.startswith(f"{KINDS[name]}|draws:3")
    assert nats.value is not None
    assert bits.value == pytest.approx(nats.value / math.log(2))
    assert nats.error is not None
    assert 0 < nats.error < nats.value
    again, _ = likelihood_metrics(system, data, "test", 6, batch_size=4, draws=3, seed=1)
    assert again == nats
    assert nats.row()["settings"] == {"draws": 3}


def test_monte_carlo_estimate_agrees_with_sum_over_all_steps() -> None:
    """Within five standard errors, and with the larger variance."""
    torch.manual_seed(0)
    data = toy_data()
    system = tiny_system(data.vocab, "absorbing").eval()
    batch = batch_of(data, [0] * 500)
    every, drawn = (system.likelihood(batch, draws, torch.Generator().manual_seed(3)) for draws in (None, 2))
    error = (drawn.nats.std() / math.sqrt(500)).item()
    assert drawn.nats.mean().item() == pytest.approx(every.nats.mean().item(), abs=5 * error)
    assert every.nats.std() < drawn.nats.std()


def test_zero_weights_give_the_uniform_likelihood() -> None:
    """Each token costs ``log`` of the number of predictable ids, the length ``log`` of the number of lengths."""
    data = toy_data()
    system = tiny_system(data.vocab, "absorbing").eval()
    for parameter in system.parameters():
        torch.nn.init.zeros_(parameter)
    batch = batch_of(data, [0] * 4000)
    found = system.likelihood(batch, None, torch.Generator().manual_seed(0))
    learned = int((batch.target[0] != data.vocab.pad).sum())
    expected = learned * math.log(data.vocab.size - 2) + math.log(system.denoiser.max_length + 1)
    assert found.nats.mean().item() == pytest.approx(expected, rel=0.01)
    assert found.tokens.tolist() == [learned - 1] * 4000  # text and <eos>


def test_system_without_likelihood_is_skipped() -> None:
    """The value is missing, not 0."""

    class NoLikelihood(System):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def loss(self, batch, generator=None):  # type: ignore[no-untyped-def]
            raise AssertionError("not used")

        def generate(self, source, decoding, generator=None, observer=None):  # type: ignore[no-untyped-def]
            raise AssertionError("not used")

    for metric in likelihood_metrics(NoLikelihood(), toy_data(), "test", None, 4, "all", 1):
        assert metric.value is None
        assert metric.skipped == "NoLikelihood has no likelihood"
