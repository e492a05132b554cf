"""The bound on the log-likelihood, against reverse chains enumerated state by state."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from rdm.diffusion.likelihood import negative_log_likelihood
from rdm.diffusion.objective import Objective, ReweightedCrossEntropy, VariationalBound
from rdm.diffusion.reweighting import Linear
from tests.diffusion.exact import VOCAB, Chain, build_process, kl, random_denoiser, seeded

STEPS, WIDTH = 3, 2
STATES = list(product(range(VOCAB.size), repeat=WIDTH))  # of a sentence of two tokens
REWEIGHTED = ReweightedCrossEntropy(Linear(), label_smoothing=0.1)  # the bound must not depend on these


class TableDenoiser:
    """``f[t, first token, second token, position]``: each prediction depends on the whole sentence."""

    def __init__(self, seed: int) -> None:
        self.table = random_denoiser(seed, (STEPS + 1, VOCAB.size, VOCAB.size, WIDTH))

    def __call__(self, tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        f = torch.from_numpy(self.table)[t, tokens[:, 0], tokens[:, 1]]
        return torch.where(f > 0, f.log(), -3e4).float()[positions]


def marginal(chain: Chain, x0: tuple[int, ...], t: int, state: tuple[int, ...]) -> float:
    return float(np.prod([chain.between(0, t)[a, b] for a, b in zip(x0, state, strict=True)]))


def exact_bound(chain: Chain, denoise: TableDenoiser, x0: tuple[int, ...]) -> float:
    """``KL(q(x_T|x_0) || q_noise) + sum_t E KL(q(x_{t-1}|x_t,x_0) || p(x_{t-1}|x_t))``, by enumeration."""
    bound = sum(kl(chain.between(0, STEPS)[token], chain.noise) for token in x0)
    for t, state in product(range(1, STEPS + 1), STATES):
        weight = marginal(chain, x0, t, state)
        if weight > 0:
            f = denoise.table[t][state]
            for n in range(WIDTH):
                true, model = chain.posterior(x0[n], state[n], t, t - 1), chain.model(f[n], state[n], t, t - 1)
                bound += weight * kl(true, model)
    return bound


def exact_nll(chain: Chain, denoise: TableDenoiser, x0: tuple[int, ...]) -> float:
    """``-log p(x_0)``: the distribution of the whole sentence, carried from step to step."""
    p = {state: float(np.prod(chain.noise[list(state)])) for state in STATES}
    for t in range(STEPS, 0, -1):
        after = dict.fromkeys(STATES, 0.0)
        for state in (state for state in STATES if p[state] > 0):
            one, two = (chain.model(denoise.table[t][state][n], state[n], t, t - 1) for n in range(WIDTH))
            for new in STATES:
                after[new] += p[state] * one[new[0]] * two[new[1]]
        p = after
    assert sum(p.values()) == pytest.approx(1)
    return -math.log(p[x0])


CASES: list[tuple[str, str, Objective]] = [
    ("absorbing", "linear", REWEIGHTED),
    ("absorbing", "cosine", REWEIGHTED),
    ("absorbing", "sqrt", VariationalBound()),
    ("uniform", "cosine", VariationalBound()),
    ("uniform", "table", VariationalBound()),  # does not end in pure noise: the prior term counts
    ("unigram", "table", VariationalBound()),
    ("mixture", "linear", VariationalBound()),
]


@pytest.mark.parametrize(("noise", "schedule", "objective"), CASES)
@pytest.mark.parametrize("draws", [None, 2])
def test_estimate_is_the_enumerated_bound(noise: str, schedule: str, objective: Objective, draws: int | None) -> None:
    """Within five standard errors, and above the enumerated negative log-likelihood."""
    chain, process = Chain.of(noise, schedule, STEPS), build_process(noise, schedule, STEPS)
    chain.alphas[-1] = chain.alphas[-1] if chain.alphas[-1] > 1e-12 else 0.0  # a cosine ends in rounding errors
    denoise, rows = TableDenoiser(seed=4), 20_000
    for x0 in ((2, 5), (3, 3)):
        clean = torch.tensor([x0]).expand(rows, -1)
        estimates = negative_log_likelihood(process, objective, denoise, clean, draws, seeded())
        error = (estimates.std() / math.sqrt(rows)).item()
        bound = exact_bound(chain, denoise, x0)
        assert estimates.mean().item() == pytest.approx(bound, abs=5 * error + 1e-6)
        assert error < 0.05 * bound
        assert bound > exact_nll(chain, denoise, x0)
    assert objective.is_bound(process)


def test_visiting_every_step_has_less_variance_than_drawing_steps() -> None:
    process, clean = build_process("absorbing", "linear", STEPS), torch.tensor([[2, 5]]).expand(5_000, -1)
    spread = [
        negative_log_likelihood(process, REWEIGHTED, TableDenoiser(4), clean, draws, seeded()).std().item()
        for draws in (None, 3)
    ]
    assert spread[0] < spread[1]


def test_surrogate_is_not_a_bound() -> None:
    """It is below the likelihood if the loss knows which tokens are noise and the model does not.

    With uniform noise and a uniform ``f`` over K ids every token costs ``log K`` nats, but the reweighted loss adds up
    to ``(1 - 1/K) log K``.
    """
    process, clean = build_process("uniform", "linear", STEPS), torch.tensor([[2, 5]]).expand(20_000, -1)
    denoise = TableDenoiser(0)
    denoise.table[..., 2:] = 1 / 4
    assert exact_nll(Chain.of("uniform", "linear", STEPS), denoise, (2, 5)) == pytest.approx(2 * math.log(4))
    surrogate = negative_log_likelihood(process, REWEIGHTED, denoise, clean, None, seeded()).mean().item()
    assert surrogate == pytest.approx(2 * 3 / 4 * math.log(4), rel=0.02)
    assert not REWEIGHTED.is_bound(process)


def test_bound_is_infinite_if_text_remains_at_the_last_step() -> None:
    """Masks are expected there: with a schedule that never reaches 0 the likelihood is 0."""
    process, clean = build_process("absorbing", "table", STEPS), torch.tensor([[2, 0]])
    assert process.prior_divergence(clean).tolist() == [[math.inf, 0.0]]


def test_padding_does_not_change_the_bound() -> None:
    process = build_process("uniform", "table", STEPS)
    one, two = (
        negative_log_likelihood(process, VariationalBound(), TableDenoiser(4), torch.tensor(rows), None, seeded())
        for rows in ([[0, 0]], [[2, 0]])
    )
    assert one.item() == 0
    assert two.item() > 0


@pytest.mark.parametrize(("noise", "objective"), [("absorbing", REWEIGHTED), ("uniform", VariationalBound())])
def test_bound_given_a_prefix(noise: str, objective: Objective) -> None:
    """The first token stays clean, and only the second one contributes."""
    process, denoise, x0 = build_process(noise, "linear", STEPS), TableDenoiser(5), (4, 5)
    chain = Chain.of(noise, "linear", STEPS)
    expected = kl(chain.between(0, STEPS)[x0[1]], chain.noise)
    for t, token in product(range(1, STEPS + 1), range(VOCAB.size)):
        weight = chain.between(0, t)[x0[1], token]
        if weight > 0:
            true = chain.posterior(x0[1], token, t, t - 1)
            expected += weight * kl(true, chain.model(denoise.table[t][x0[0], token][1], token, t, t - 1))
    tokens = torch.tensor(x0).expand(20_000, -1)
    nats = negative_log_likelihood(process, objective, denoise, tokens, generator=seeded(1), prefix=1)
    assert abs(nats.mean().item() - expected) < 4 * nats.std().item() / len(nats) ** 0.5 + 1e-6
