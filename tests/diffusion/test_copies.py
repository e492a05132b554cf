"""Noised copies: their number, their steps, and how they depend on each other."""

from itertools import product

import numpy as np
import pytest
import torch

from rdm.diffusion.copies import Conditioned, NoisedCopies, SameStep, Single, TwoSteps, UniformMasks
from rdm.diffusion.noise import Absorbing
from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.schedule import Linear
from tests.diffusion.exact import (
    NOISES,
    ORDINARY,
    SCHEDULES,
    SENTENCE_VOCAB,
    VOCAB,
    Chain,
    assert_drawn_from,
    build_process,
    count,
    seeded,
)

STEPS = 4
SENTENCES = 40_000
COPIES = {Single: 1, Conditioned: 2, SameStep: 2, TwoSteps: 2}
PAIRS = (Conditioned, SameStep, TwoSteps)


def draw(kind: type[NoisedCopies], noise: str, schedule: str, seed: int = 0) -> NoisedBatch:
    """Many copies of one sentence that holds every ordinary id once."""
    x0 = torch.tensor(ORDINARY).expand(SENTENCES, -1)
    return kind()(build_process(noise, schedule, STEPS), x0, seeded(seed))


def independent(chain: Chain, x0: int, s: int, t: int) -> np.ndarray:
    """``q(x_s | x_0) q(x_t | x_0)``, ``[V, V]``."""
    return np.outer(chain.between(0, s)[x0], chain.between(0, t)[x0])


def conditioned(chain: Chain, x0: int, s: int, t: int) -> np.ndarray:
    """``q(x_s | x_t, x_0) q(x_t | x_0)``, ``[x_s, x_t]``; two independent copies where ``s = t``."""
    if s == t:
        return independent(chain, x0, s, t)
    joint = np.zeros((VOCAB.size, VOCAB.size))
    for x_t in chain.reachable(x0, t):
        joint[:, x_t] = chain.posterior(x0, x_t, t, s) * chain.between(0, t)[x0, x_t]
    return joint


@pytest.mark.parametrize(("noise", "schedule"), list(product(NOISES, SCHEDULES)))
def test_conditioned_pair_is_the_forward_chain(noise: str, schedule: str) -> None:
    """By Bayes' rule, the joint for ``s < t`` is that of the forward chain, ``q(x_s | x_0) q(x_t | x_s)``."""
    chain = Chain.of(noise, schedule, STEPS)
    for s, t in ((1, 2), (1, STEPS), (2, 3)):
        forward = chain.between(0, s)[3][:, None] * chain.between(s, t)
        np.testing.assert_allclose(conditioned(chain, 3, s, t), forward, atol=1e-12)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(("noise", "schedule"), list(product(NOISES, SCHEDULES)))
def test_joint_distribution_of_two_copies(kind: type[NoisedCopies], noise: str, schedule: str) -> None:
    """Given the steps, the two copies of each token have the right joint distribution.

    Conditioned: ``q(x_t | x_0) q(x_s | x_t, x_0)`` if ``s < t``, independent if ``s = t``. The others: independent.
    """
    chain = Chain.of(noise, schedule, STEPS)
    law = conditioned if kind is Conditioned else independent
    noised = draw(kind, noise, schedule)
    (s, t), (x_s, x_t) = noised.t.view(-1, 2).unbind(1), noised.x_t.view(SENTENCES, 2, -1).unbind(1)
    counts, probs = [], []
    for first, second in product(range(1, STEPS + 1), repeat=2):
        chosen = (s == first) & (t == second)
        if not chosen.any():
            continue  # a pair of steps that is never drawn: see test_distribution_of_steps
        values = (x_s[chosen] * VOCAB.size + x_t[chosen]).T
        counts.append(count(values, VOCAB.size**2))
        probs.extend(law(chain, x0, first, second).ravel() for x0 in ORDINARY)
    assert_drawn_from(np.concatenate(counts), np.stack(probs))


@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("schedule", ["linear", "table"])
def test_marginal_distribution_of_each_copy(kind: type[NoisedCopies], noise: str, schedule: str) -> None:
    """Every copy follows ``q(x_t | x_0)`` at every step, so conditioning leaves the loss unbiased."""
    chain = Chain.of(noise, schedule, STEPS)
    noised = draw(kind, noise, schedule, seed=1)
    steps, tokens = noised.t.view(SENTENCES, -1), noised.x_t.view(SENTENCES, COPIES[kind], -1)
    counts, probs = [], []
    for copy, step in product(range(COPIES[kind]), range(1, STEPS + 1)):
        counts.append(count(tokens[steps[:, copy] == step, copy].T, VOCAB.size))
        probs.append(chain.between(0, step)[list(ORDINARY)])
    assert_drawn_from(np.concatenate(counts), np.concatenate(probs))


@pytest.mark.parametrize(
    ("kind", "probs"),
    [
        (Single, np.ones(STEPS)),
        (SameStep, np.eye(STEPS)),
        (TwoSteps, np.ones((STEPS, STEPS))),
        (Conditioned, np.eye(STEPS) + 2 * np.triu(np.ones((STEPS, STEPS)), 1)),  # smaller first
    ],
)
def test_distribution_of_steps(kind: type[NoisedCopies], probs: np.ndarray) -> None:
    """Steps are uniform on 1..T: one, twice the same, two independent ones, two in order."""
    steps = draw(kind, "absorbing", "linear").t.view(SENTENCES, -1) - 1
    assert set(steps.unique().tolist()) == set(range(STEPS))
    code = steps[:, 0] if steps.shape[1] == 1 else steps[:, 0] * STEPS + steps[:, 1]
    assert_drawn_from(count(code[None], probs.size), probs.reshape(1, -1) / probs.sum())


def test_conditioned_steps_are_in_order() -> None:
    """``s <= t``, and both cases occur."""
    s, t = draw(Conditioned, "uniform", "linear").t.view(-1, 2).unbind(1)
    assert (s <= t).all()
    assert 0 < (s == t).sum() < SENTENCES


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_conditioned_absorbing_copies_are_nested(schedule: str) -> None:
    """With absorbing noise, tokens that are noisy at ``s < t`` are noisy at ``t``."""
    noised = draw(Conditioned, "absorbing", schedule)
    (s, t), (at_s, at_t) = noised.t.view(-1, 2).unbind(1), noised.noisy.view(SENTENCES, 2, -1).unbind(1)
    earlier = s < t
    assert not (at_s & ~at_t)[earlier].any()
    assert (at_t & ~at_s)[earlier].any()


@pytest.mark.parametrize("kind", [Conditioned, SameStep])
@pytest.mark.parametrize("noise", NOISES)
def test_copies_at_the_same_step_are_independent(kind: type[NoisedCopies], noise: str) -> None:
    """If ``s = t`` the copies differ, and neither is nested in the other."""
    noised = draw(kind, noise, "linear")
    (s, t), (at_s, at_t) = noised.t.view(-1, 2).unbind(1), noised.noisy.view(SENTENCES, 2, -1).unbind(1)
    same = (s == t) & (t < STEPS)
    assert (at_s & ~at_t)[same].any()
    assert (at_t & ~at_s)[same].any()


@pytest.mark.parametrize("kind", COPIES)
def test_copies_of_a_sentence_are_adjacent_rows(kind: type[NoisedCopies]) -> None:
    """There are ``R = B * copies`` rows; text, noise and step of each row match."""
    process = DiffusionProcess(Linear(STEPS), Absorbing(SENTENCE_VOCAB))
    x0 = torch.randint(5, 9, (300, 7), generator=seeded())
    x0[:, -2:] = torch.where(torch.arange(300)[:, None] % 3 == 0, SENTENCE_VOCAB.pad, x0[:, -2:])
    noised = kind()(process, x0, seeded(1))
    rows = 300 * COPIES[kind]
    assert noised.x0.shape == noised.x_t.shape == noised.learnable.shape == (rows, 7)
    assert noised.t.shape == (rows,)
    for row in range(rows):
        assert torch.equal(noised.x0[row], x0[row // COPIES[kind]])
    assert torch.equal(noised.learnable, noised.x0 != SENTENCE_VOCAB.pad)
    kept = noised.x_t != SENTENCE_VOCAB.mask
    assert torch.equal(noised.x_t[kept], noised.x0[kept])
    assert kept[~noised.learnable].all()
    assert not (kept & noised.learnable)[noised.t == STEPS].any()
    share = torch.stack([kept[noised.learnable & (noised.t == t)[:, None]].double().mean() for t in (1, 2, 3)])
    assert share.tolist() == pytest.approx([0.75, 0.5, 0.25], abs=0.08)


def test_uniform_masks_draws_a_uniform_number() -> None:
    """``n ~ Uniform{1..N}`` ordinary tokens are masked at uniform positions; special symbols never are."""
    vocab, longest, steps = SENTENCE_VOCAB, 6, 12
    process = DiffusionProcess(Linear(steps), Absorbing(vocab, noise_specials=False))
    lengths = torch.arange(SENTENCES) % longest + 1
    columns = torch.arange(longest + 2)
    x0 = torch.where(columns <= lengths[:, None], 5 + columns % 4, vocab.pad)
    x0[:, 0], x0[torch.arange(SENTENCES), lengths + 1] = vocab.bos, vocab.eos
    noised = UniformMasks()(process, x0, seeded())
    masked = noised.x_t == vocab.mask
    assert torch.equal(noised.noisy, masked)
    assert not (masked & ~vocab.is_ordinary(x0)).any()
    numbers, share = masked.sum(1), steps / lengths
    assert torch.equal(noised.t, (numbers * share).ceil().long())
    counts, probs = [], []
    for length in range(1, longest + 1):
        row = (lengths == length).nonzero().squeeze(1)
        counts.append(count(numbers[row][None] - 1, longest))
        probs.append([[1 / length] * length + [0] * (longest - length)])
        for number in range(1, length):  # conditioned on the number, each position is masked with probability n / N
            places = masked[row][numbers[row] == number][:, 1 : length + 1].long()
            counts.append(np.pad(count(places.T, 2), ((0, 0), (0, longest - 2))))
            probs.append([[1 - number / length, number / length] + [0] * (longest - 2)] * length)
    assert_drawn_from(np.concatenate(counts), np.concatenate(probs))


@pytest.mark.parametrize("kind", COPIES)
def test_copies_are_reproducible(kind: type[NoisedCopies]) -> None:
    """Equal generator states give equal steps and noise."""
    process, x0 = build_process("mixture", "cosine"), torch.tensor(ORDINARY).expand(50, -1)
    first, again, other = (kind()(process, x0, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.x_t, again.x_t)
    assert torch.equal(first.t, again.t)
    assert not torch.equal(first.x_t, other.x_t)
