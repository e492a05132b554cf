"""CDCD: score interpolation, time warping, normalised embeddings, loss by hand, Euler sampling, overfitting."""

import math

import pytest
import torch
from torch import Tensor

from rdm.decoding.candidates import LengthAwareScore
from rdm.decoding.euler import EulerSampler, interpolated_score
from rdm.diffusion.gaussian import normal
from rdm.diffusion.warping import TimeWarp
from rdm.errors import UserError
from rdm.systems.cdcd import CDCDSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, overfit, sampler, tiny_cdcd
from tests.decoding.helpers import seeded

VOCAB = Vocab(size=20)
PAD, BOS, EOS = VOCAB.pad, VOCAB.bos, VOCAB.eos
BATCH = batch_from(VOCAB, [([5, 6], [7, 8, 9]), ([10, 11, 12], [13])])

MEANS = torch.tensor([[1.0, 0.5], [-0.5, 1.0], [0.3, -1.2]], dtype=torch.float64)
WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def component_log_probs(x: Tensor, t: float) -> Tensor:
    """``log w_k N(x; mu_k, t^2 I)`` ``[..., 3]`` of a mixture."""
    distance = (x[..., None, :] - MEANS).square().sum(-1)
    return WEIGHTS.log() - distance / (2 * t**2) - math.log(2 * math.pi * t**2)


@pytest.mark.parametrize("t", [0.7, 2.0])
def test_score_against_finite_differences(t: float) -> None:
    """With the exact posterior of the words, the interpolated score is the gradient of the log-density."""
    x, step = torch.randn(20, 2, dtype=torch.float64, generator=seeded(1)), 1e-5
    score = interpolated_score(x, component_log_probs(x, t).softmax(-1), MEANS, t)
    for axis in range(2):
        shift = torch.zeros(2, dtype=torch.float64)
        shift[axis] = step
        densities = [component_log_probs(x + sign * shift, t).logsumexp(-1) for sign in (1, -1)]
        torch.testing.assert_close(score[:, axis], (densities[0] - densities[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_euler_steps_sample_the_mixture() -> None:
    """With the exact posterior, words come out with their probabilities."""

    def predict(x: Tensor, t: Tensor, guess: Tensor | None) -> Tensor:
        return component_log_probs(x.double(), float(t[0]))

    warp = TimeWarp(smallest=0.05, largest=50.0)
    noise = torch.randn(4000, 1, 2, dtype=torch.float64, generator=seeded(2))
    words, _ = EulerSampler("x", steps=100).run(predict, MEANS, noise, warp.levels)
    shares = words.flatten().bincount(minlength=3) / 4000
    assert (shares - WEIGHTS).abs().max() < 0.03


def test_each_prediction_conditions_the_next() -> None:
    guesses: list[Tensor | None] = []

    def predict(x: Tensor, t: Tensor, guess: Tensor | None) -> Tensor:
        guesses.append(guess)
        return component_log_probs(x, float(t[0]))

    EulerSampler("x", steps=3).run(predict, MEANS, torch.ones(1, 1, 2, dtype=torch.float64), TimeWarp().levels)
    assert guesses[0] is None
    for guess in guesses[1:]:
        assert guess is not None
        assert guess.shape == (1, 1, 2)


def known_loss(t: Tensor) -> Tensor:
    return 3 * torch.sigmoid(4 * (t.log() - math.log(10)))


def test_warping_fits_a_known_distribution() -> None:
    """The loss as a function of t; levels drawn from it have its distribution function."""
    warp, generator = TimeWarp(largest=100.0, bins=40), seeded(3)
    optimizer = torch.optim.Adam(warp.parameters(), lr=5e-3)
    for _ in range(600):
        t = warp.levels(torch.rand(256, generator=generator))
        optimizer.zero_grad()
        warp.misfit(t, known_loss(t)).mean().backward()
        optimizer.step()
    t = torch.tensor([2.0, 5.0, 8.0, 10.0, 14.0, 30.0, 90.0])
    assert (warp(t) - known_loss(t)).abs().max() < 0.1
    drawn = warp.levels(torch.rand(20_000, generator=generator))
    for level in (5.0, 8.0, 10.0, 14.0):
        expected = known_loss(torch.tensor(level)) / known_loss(torch.tensor(100.0))
        assert float((drawn <= level).float().mean()) == pytest.approx(float(expected), abs=0.03)


def test_warping_is_monotone_and_inverted_by_levels() -> None:
    warp = TimeWarp(smallest=0.5, largest=300.0, bins=7)
    torch.nn.init.normal_(warp.log_increments, std=0.1)
    u = torch.linspace(0, 1, 50)
    t = warp.levels(u)
    assert float(t[0]) == pytest.approx(0.5)
    assert float(t[-1]) == pytest.approx(300.0)
    assert (t.diff() > 0).all()
    with torch.no_grad():
        torch.testing.assert_close(warp(t) / warp(torch.tensor(300.0)), u, rtol=1e-4, atol=1e-5)


@pytest.fixture
def system() -> CDCDSystem:
    torch.manual_seed(0)
    return tiny_cdcd(VOCAB, max_length=4)


@pytest.mark.parametrize("conditioned", [0.0, 1.0])
def test_loss_by_hand(system: CDCDSystem, conditioned: float) -> None:
    """With the noise drawn again in the same order; no gradient through the first pass."""
    system.self_conditioning = conditioned
    calls: list[bool] = []
    system.denoiser.register_forward_hook(lambda _, __, logits: calls.append(logits.requires_grad))
    terms = {term.name: term for term in system.loss(BATCH, seeded(5))}
    assert calls == ([False, True] if conditioned else [True])
    generator, words = seeded(5), system.canvas(BATCH.target)
    t = system.warp.levels(torch.rand(2, generator=generator))
    embeddings = system.denoiser.embeddings().detach()
    x = embeddings[words] + t[:, None, None] * normal(embeddings[words], generator)
    source = system.denoiser.encode(BATCH.source)
    guess = system.denoiser(x, t, source).softmax(-1) @ embeddings if conditioned else None
    log_probs = system.denoiser(x, t, source, guess).log_softmax(-1).detach()
    losses = [-sum(float(log_probs[b, n, words[b, n]]) for n in range(6)) / 6 for b in range(2)]
    assert terms["cross_entropy"].total.item() == pytest.approx(sum(losses), rel=1e-4)
    misfit = sum((float(system.warp(t)[b].detach()) - losses[b]) ** 2 for b in range(2))
    assert terms["warp"].total.item() == pytest.approx(misfit, rel=1e-4)


def test_the_warp_learns_from_the_misfit_only(system: CDCDSystem) -> None:
    """And the network from the cross-entropy only."""
    entropy, warp = (term.total for term in system.loss(BATCH, seeded()))
    entropy.backward(retain_graph=True)
    assert system.warp.log_increments.grad is None
    assert all(p.grad is not None for name, p in system.denoiser.named_parameters())
    system.zero_grad()
    warp.backward()
    assert system.warp.log_increments.grad.abs().sum() > 0
    assert all(p.grad is None for p in system.denoiser.parameters())


def test_overfits_32_pairs_with_normalised_embeddings() -> None:
    generator = seeded(1)
    lengths = torch.randint(2, 6, (64,), generator=generator).tolist()
    sides = [torch.randint(5, VOCAB.size, (length,), generator=generator).tolist() for length in lengths]
    batch = batch_from(VOCAB, list(zip(sides[:32], sides[32:], strict=True)))
    torch.manual_seed(1)
    system = tiny_cdcd(VOCAB, dim=64, layers=2, max_length=6)
    before = system.denoiser.embeddings().detach().clone()
    overfit(system, batch, steps=250, lr=4e-3)
    embeddings = system.denoiser.embeddings().detach()
    torch.testing.assert_close(embeddings.norm(dim=1), torch.full((20,), 4.0))  # sqrt(16)
    assert (embeddings - before).norm(dim=1).max() > 0.5  # they have moved
    tokens = system.generate(batch.source, EulerSampler("x", 10), seeded()).tokens
    right = (tokens == system.canvas(batch.target)).all(1).float().mean()
    assert right >= 0.9


def test_other_uses_raise(system: CDCDSystem) -> None:
    system.check(EulerSampler("x"))
    with pytest.raises(UserError, match="system=cdcd needs decoding=cdcd or decoding=cdcd_mbr, not cmlm"):
        system.check(sampler("cmlm"))
    with pytest.raises(UserError, match="CDCD has no length head"):
        system.check(EulerSampler("x", selection=LengthAwareScore(0.3)))
    with pytest.raises(UserError, match="template: CDCD cannot fill blanks"):
        system.generate(BATCH.source, EulerSampler("x", 2), template=BATCH.target)
    with pytest.raises(UserError, match="0 < smallest < largest"):
        TimeWarp(3.0, 2.0)
    assert system.likelihood(BATCH) is None
