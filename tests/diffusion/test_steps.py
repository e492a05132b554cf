"""Stratified steps and complementary copies."""

from itertools import product

import numpy as np
import pytest
import torch

from rdm.diffusion.copies import Complementary, Conditioned, SameStep, Single, TwoSteps
from rdm.diffusion.steps import StratifiedSteps, UniformSteps
from tests.diffusion.exact import NOISES, ORDINARY, VOCAB, Chain, assert_drawn_from, build_process, count, seeded

STEPS = 4


@pytest.mark.parametrize("batch", [1, 3, 4, 10])
def test_one_step_in_each_part(batch: int) -> None:
    """Steps counted within ``B`` equal parts of (0, T]: one in each, whichever sentence gets it."""
    process, generator = build_process("absorbing", "linear", 50), seeded(0)
    for _ in range(20):
        t = StratifiedSteps()(process, torch.zeros(batch, 2, dtype=torch.long), generator).sort().values
        parts = torch.arange(batch) * 50 / batch
        assert (t > parts.floor()).all()
        assert (t <= (parts + 50 / batch).ceil()).all()


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_each_step_is_uniform(batch: int) -> None:
    process, generator = build_process("absorbing", "linear", STEPS), seeded(1)
    x0 = torch.zeros(batch, 2, dtype=torch.long)
    draws = torch.stack([StratifiedSteps()(process, x0, generator) for _ in range(4000)]) - 1
    assert_drawn_from(count(draws.T, STEPS), np.full((batch, STEPS), 1 / STEPS))


def test_stratified_means_vary_less() -> None:
    process, generator = build_process("absorbing", "linear", 50), seeded(2)
    x0 = torch.zeros(16, 2, dtype=torch.long)
    spread = {
        kind: torch.stack([kind()(process, x0, generator).double().mean() for _ in range(400)]).std()
        for kind in (UniformSteps, StratifiedSteps)
    }
    assert spread[StratifiedSteps] < spread[UniformSteps] / 5


@pytest.mark.parametrize(
    ("kind", "ordered"), [(Single, True), (SameStep, True), (TwoSteps, True), (Conditioned, False)]
)
def test_copies_use_the_steps(kind: type, ordered: bool) -> None:
    """``B = T`` sentences: every copy has all steps once; the two of a conditioned pair together have each twice."""
    process = build_process("absorbing", "linear", STEPS)
    x0 = torch.tensor(ORDINARY).expand(STEPS, -1)
    noised = kind(StratifiedSteps())(process, x0, seeded(3))
    t = noised.t.view(STEPS, -1)
    assert t.flatten().sort().values.tolist() == sorted(list(range(1, STEPS + 1)) * t.shape[1])
    assert not ordered or all(column.sort().values.tolist() == [1, 2, 3, 4] for column in t.T)


@pytest.mark.parametrize("noise", NOISES)
def test_complementary_copies(noise: str) -> None:
    """The noised positions divide the sentence, and both copies have the right distribution at their steps."""
    sentences = 20_000
    process, chain = build_process(noise, "linear", STEPS), Chain.of(noise, "linear", STEPS)
    x0 = torch.tensor(ORDINARY).expand(sentences, -1)
    noised = Complementary()(process, x0, seeded(4))
    (t, s), (first, second) = noised.t.view(-1, 2).unbind(1), noised.x_t.view(sentences, 2, -1).unbind(1)
    assert torch.equal(s, (STEPS - t).clamp(min=1))
    assert not ((first != x0) & (second != x0)).any()
    if noise == "absorbing":  # noise never looks like text
        assert ((first != x0) ^ (second != x0)).all()
    counts, probs = [], []
    for step, (steps, tokens) in product(range(1, STEPS), ((t, first), (s, second))):
        chosen = (steps == step) & (t < STEPS)  # where t = T the second copy is clean, and has step 1
        counts.append(count(tokens[chosen].T, VOCAB.size))
        probs.append(chain.between(0, step)[list(ORDINARY)])
    assert_drawn_from(np.concatenate(counts), np.concatenate(probs))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_step_keeping_a_share(schedule: str) -> None:
    process = build_process("absorbing", schedule, STEPS)
    t = torch.arange(1, STEPS + 1)
    assert torch.equal(process.step_keeping(process.schedule.alpha(t)), t)
    assert process.step_keeping(torch.tensor([1.0, 0.0])).tolist() == [1, STEPS]
