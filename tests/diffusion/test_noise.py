"""Noise distributions: probabilities, which ids they touch, and the sampler."""

import numpy as np
import pytest
import torch

from rdm.diffusion.noise import Absorbing, Mixture, Noise, Uniform, Unigram
from rdm.errors import UserError
from rdm.vocab import Vocab
from tests.diffusion.exact import (
    COUNTS,
    NOISES,
    PROBS,
    SENTENCE_VOCAB,
    VOCAB,
    assert_drawn_from,
    build_noise,
    count,
    seeded,
)


@pytest.mark.parametrize("name", NOISES)
def test_probabilities(name: str) -> None:
    """``prob`` gives the probabilities of the definition, in float64 and in the shape asked for."""
    ids = torch.arange(VOCAB.size).view(2, 3)
    actual = build_noise(name).prob(ids)
    torch.testing.assert_close(actual, torch.tensor(PROBS[name], dtype=torch.float64).view(2, 3), rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("size", [12, 30_522, 50_000])
def test_probabilities_sum_to_one(name: str, size: int) -> None:
    """To float64 precision, for any vocabulary size."""
    noise = build_noise(name, Vocab(size=size), torch.arange(size))
    assert noise.probs.sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", NOISES)
def test_sample_follows_the_probabilities(name: str) -> None:
    """The draws pass a chi-square test and contain no id of probability zero."""
    draws = build_noise(name).sample(torch.zeros(4, 20_000, dtype=torch.long), seeded())
    assert draws.shape == (4, 20_000)
    assert draws.dtype == torch.long
    assert_drawn_from(count(draws, VOCAB.size), np.tile(PROBS[name], (4, 1)))


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("size", [9, 50_000])
def test_extreme_uniform_draws_give_possible_ids(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform draws of 0, just below 1 and exactly at the jumps of the CDF give ids of positive probability."""
    noise = build_noise(name, Vocab(size=size), torch.arange(size))
    steps = noise.probs.cumsum(0)
    extremes = torch.cat([torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64), noise.cdf, steps])
    extremes = extremes[extremes < 1]
    monkeypatch.setattr(torch, "rand", lambda shape, **_: extremes)
    draws = noise.sample(torch.zeros_like(extremes, dtype=torch.long))
    assert (noise.prob(draws) > 0).all()


@pytest.mark.parametrize("name", NOISES)
def test_sample_is_reproducible(name: str) -> None:
    """Equal generator states give equal samples, different states different ones."""
    noise, like = build_noise(name), torch.zeros(3, 50, dtype=torch.long)
    first, again, other = (noise.sample(like, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name == "absorbing")


@pytest.mark.parametrize(
    ("noise", "learnable", "support"),
    [
        (Absorbing(SENTENCE_VOCAB), [2, 3, 4, 5, 6, 7, 8], [1]),
        (Absorbing(SENTENCE_VOCAB, noise_specials=False), [5, 6, 7, 8], [1]),
        (Uniform(SENTENCE_VOCAB), [5, 6, 7, 8], [5, 6, 7, 8]),
        (build_noise("unigram", SENTENCE_VOCAB, torch.arange(9)), [5, 6, 7, 8], [5, 6, 7, 8]),
        (Mixture(SENTENCE_VOCAB), [5, 6, 7, 8], [1, 5, 6, 7, 8]),
        (Mixture(SENTENCE_VOCAB, mask_share=0.0), [5, 6, 7, 8], [5, 6, 7, 8]),
        (Mixture(SENTENCE_VOCAB, mask_share=1.0), [5, 6, 7, 8], [1]),
    ],
)
def test_learnable_and_support(noise: Noise, learnable: list[int], support: list[int]) -> None:
    """Which ids may be replaced and which may replace them; padding is neither."""
    assert noise.learnable.dtype == torch.bool
    assert noise.learnable.nonzero().flatten().tolist() == learnable
    assert noise.probs.nonzero().flatten().tolist() == support


def test_mixture_share() -> None:
    """``mask_share`` of the mass is on the mask, the rest is uniform over the ordinary ids."""
    probs = Mixture(SENTENCE_VOCAB, mask_share=0.2).probs
    assert probs.tolist() == pytest.approx([0, 0.2, 0, 0, 0, 0.2, 0.2, 0.2, 0.2])


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_invalid_mask_share_raises(share: float) -> None:
    """The share of the mask is a probability."""
    with pytest.raises(UserError, match="mask_share"):
        Mixture(VOCAB, share)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5, 4.0])
def test_unigram_temperature(temperature: float) -> None:
    """``count ** (1 / temperature)`` over the ordinary ids, an unseen id counting as seen once."""
    noise = Unigram(VOCAB, temperature)
    noise.fit(lambda: torch.tensor([1000, 1000, 3, 0, 12, 5]))
    weights = np.array([0, 0, 3, 1, 12, 5], dtype=float)
    weights[2:] **= 1 / temperature
    assert noise.probs.tolist() == pytest.approx(weights / weights.sum(), rel=1e-14)
    draws = noise.sample(torch.zeros(1, 40_000, dtype=torch.long), seeded())
    assert_drawn_from(count(draws, VOCAB.size), weights[None] / weights.sum())


def test_unigram_default_temperature() -> None:
    """1.5: counts 1, 8, 27, 64 give 1, 4, 9, 16."""
    noise = Unigram(VOCAB)
    noise.fit(lambda: COUNTS)
    assert (noise.probs * 30).tolist() == pytest.approx([0, 0, 1, 4, 9, 16])


def test_sampling_unfitted_unigram_noise_raises() -> None:
    """Without counts the distribution is undefined."""
    with pytest.raises(UserError, match="counts"):
        Unigram(VOCAB).sample(torch.zeros(2, 2, dtype=torch.long))


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_invalid_temperature_raises(temperature: float) -> None:
    """A temperature is positive."""
    with pytest.raises(UserError, match="temperature"):
        Unigram(VOCAB, temperature)


def test_unigram_probabilities_are_saved_in_the_checkpoint() -> None:
    """An unfitted noise that loads the state of a fitted one draws the same."""
    fitted, loaded, like = build_noise("unigram"), Unigram(VOCAB), torch.zeros(2, 100, dtype=torch.long)
    loaded.load_state_dict(fitted.state_dict())
    assert torch.equal(fitted.sample(like, seeded()), loaded.sample(like, seeded()))


@pytest.mark.parametrize("kind", [Absorbing, Uniform, Mixture])
def test_other_noises_do_not_compute_counts(kind: type[Noise]) -> None:
    """Counting the training targets is slow: only unigram noise does it."""
    kind(VOCAB).fit(lambda: pytest.fail("asked for counts"))
