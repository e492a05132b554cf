"""Numerical limits: everything is finite at alpha 0 and 1, with 50,000 ids and in half precision."""

from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor

from rdm.decoding.candidates import NearLengths, TopLengths
from rdm.decoding.proposal import Proposal
from rdm.decoding.sampler import Canvas, Sampler
from rdm.decoding.schedule import Linear as LinearDecoding
from rdm.diffusion.gaussian import GaussianProcess, nearest
from rdm.diffusion.likelihood import negative_log_likelihood
from rdm.diffusion.noise import Absorbing, Mixture, Noise, Uniform, Unigram
from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.objective import Objective, ReweightedCrossEntropy, VariationalBound
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Constant, Linear, Original
from rdm.diffusion.schedule import Cosine, Schedule, Sqrt, Table
from rdm.models.network import BARRED
from rdm.vocab import Vocab
from tests.decoding.helpers import TRANSITIONS

VOCAB = Vocab(size=50_000)
LAST = VOCAB.size - 1
ALPHAS = [1.0, 1.0, 1.0 - 1e-16, 0.5, 1e-300, 0.0, 0.0]
"""Exactly 1 for two steps, exactly 0 for the last two, and between them values close to 1 and 0."""
STEPS = len(ALPHAS) - 1
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
HALF = DTYPES[1:]
SCHEDULES: dict[str, Schedule] = {"table": Table(ALPHAS), "cosine": Cosine(STEPS), "sqrt": Sqrt(STEPS)}


def unigram(vocab: Vocab) -> Noise:
    """Counts that differ by twelve orders of magnitude."""
    noise = Unigram(vocab, temperature=1.0)
    noise.fit(lambda: torch.logspace(0, 12, vocab.size))
    return noise


NOISES: dict[str, Callable[[Vocab], Noise]] = {
    "absorbing": Absorbing,
    "uniform": Uniform,
    "unigram": unigram,
    "mixture": Mixture,
    "all_masks": lambda vocab: Mixture(vocab, mask_share=1.0),
    "no_masks": lambda vocab: Mixture(vocab, mask_share=0.0),
}
OBJECTIVES: dict[str, Objective] = {
    "bound": VariationalBound(),
    **{type(w).__name__: ReweightedCrossEntropy(w, 0.1) for w in (Original(), Linear(), Constant())},
}


def process(noise: str, schedule: str = "table") -> DiffusionProcess:
    return DiffusionProcess(SCHEDULES[schedule], NOISES[noise](VOCAB))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def clean() -> Tensor:
    """One row per step; the tokens include the first and the last ordinary id."""
    row = torch.tensor([VOCAB.bos, 5, 6, 777, LAST, 5, VOCAB.eos, VOCAB.pad])
    return row.expand(STEPS, -1).clone()


def extreme_logits(rows: int, dtype: torch.dtype, diffusion: DiffusionProcess) -> Tensor:
    """Logits near the maximum of float16 (65504), ties, and barred ids."""
    logits = torch.randn(rows, VOCAB.size, generator=generator())
    logits[::3] *= 1e4
    logits[1::3] = 0
    logits = logits.clamp(-3e4, 3e4)
    return (logits + torch.where(diffusion.noise.learnable, 0.0, BARRED)).to(dtype).requires_grad_()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("noise", NOISES)
def test_process_is_valid_at_every_pair_of_steps(noise: str, schedule: str) -> None:
    """Routing probabilities lie in [0, 1] and samples in the vocabulary."""
    q = process(noise, schedule)
    x0 = clean()
    for s, t in combinations(range(STEPS + 1), 2):
        t_rows, s_rows = torch.full((len(x0),), t), torch.full((len(x0),), s)
        x_t = q.corrupt(x0, t_rows, generator())
        for tokens in (x_t, x0, torch.full_like(x0, VOCAB.mask), torch.full_like(x0, LAST)):
            for probability in (q.lambda1(tokens, t_rows, s_rows), q.lambda2(t_rows, s_rows)):
                assert ((probability >= 0) & (probability <= 1)).all(), (s, t)
        x_s = q.step_posterior(x_t, x0, t_rows, s_rows, generator())
        for drawn in (x_t, x_s, q.renoise(x_t, t_rows, s_rows, generator())):
            assert ((drawn >= 0) & (drawn < VOCAB.size)).all()
        assert q.schedule.alpha(t_rows)[0] != 1 or torch.equal(x_t, x0)
        assert s != 0 or torch.equal(x_s, x0)
    assert not q.prior_divergence(x0).isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("noise", NOISES)
def test_dense_posterior_is_a_distribution(noise: str, dtype: torch.dtype) -> None:
    """For every pair of steps and every reachable state."""
    q = process(noise)
    x0 = torch.tensor([5, 777, LAST])
    for s, t in combinations(range(STEPS + 1), 2):
        t_rows, s_rows = torch.full((len(x0),), t), torch.full((len(x0),), s)
        x_t = q.corrupt(x0[:, None], t_rows, generator())[:, 0]
        logits = extreme_logits(len(x0), dtype, q)
        # As in the objective: float32 before the softmax.
        predictions = {"model": logits.float().log_softmax(-1), "text": torch.full(logits.shape, float("-inf"))}
        predictions["text"][torch.arange(len(x0)), x0] = 0.0
        for name, log_probs in predictions.items():
            posterior = q.posterior_log_probs(x_t, log_probs, t_rows, s_rows)
            assert not posterior.isnan().any(), (name, s, t)
            assert (posterior < 1e-3).all(), (name, s, t)
            if name == "text":
                torch.testing.assert_close(posterior.exp().sum(1), torch.ones(len(x0)), rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_objectives_are_finite(noise: str, objective: str, dtype: torch.dtype) -> None:
    """Loss and gradient, at every step."""
    q, loss = process(noise), OBJECTIVES[objective]
    x0 = clean()
    t = torch.arange(1, STEPS + 1)
    noised = NoisedBatch(x0=x0, x_t=q.corrupt(x0, t, generator()), t=t, learnable=q.learnable(x0))
    positions = loss.positions(noised)
    logits = extreme_logits(int(positions.sum()), dtype, q)
    total = loss.losses(logits, noised.at(positions), q).sum()
    total.backward()
    assert total.isfinite()
    assert total >= -1e-3
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("noise", NOISES)
def test_likelihood_is_finite(noise: str, dtype: torch.dtype) -> None:
    q = process(noise)

    def denoise(x_t: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        return extreme_logits(int(positions.sum()), dtype, q).detach()

    for objective in OBJECTIVES.values():
        assert negative_log_likelihood(q, objective, denoise, clean()[:2], None, generator()).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("top_p", [1e-6, 0.9, 1.0])
@pytest.mark.parametrize("temperature", [0.0, 1e-4, 1.0, 1e4])
def test_proposals_are_valid(temperature: float, top_p: float, dtype: torch.dtype) -> None:
    """A proposal is a learnable id and its score a log-probability."""
    q = process("uniform")
    logits = extreme_logits(9, dtype, q).detach()
    tokens, scores = Proposal(temperature, top_p=top_p)(logits, generator=generator())
    assert scores.isfinite().all()
    assert (scores <= 1e-3).all()
    assert temperature > 1e3 or q.noise.learnable[tokens].all()


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("noise", ["absorbing", "uniform", "unigram", "mixture"])
def test_decoding_is_valid(noise: str, transition: str, dtype: torch.dtype) -> None:
    """The sampler returns learnable ids, unchanged pinned tokens and finite scores."""
    q = process(noise)
    tokens = clean()[:2]
    pinned = ~q.learnable(tokens) | (tokens == VOCAB.bos)

    def denoise(x_t: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        return extreme_logits(int(positions.sum()), dtype, q).detach()

    sampler = Sampler("extreme", STEPS, TRANSITIONS[transition](), LinearDecoding(), temperature=1.0)
    decoded = sampler.run(q, denoise, Canvas(tokens, pinned), generator())
    assert torch.equal(decoded.tokens[pinned], tokens[pinned])
    assert q.noise.learnable[decoded.tokens[~pinned]].all()
    assert decoded.scores.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_length_choices_with_barred_logits(dtype: torch.dtype) -> None:
    logits = torch.full((2, 300), BARRED, dtype=dtype)
    for choice in (TopLengths(), NearLengths()):
        lengths = choice(logits, 5)
        assert ((lengths >= 1) & (lengths < 300)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gaussian_process_is_finite(dtype: torch.dtype, schedule: str) -> None:
    q = GaussianProcess(SCHEDULES[schedule])
    z0 = torch.randn(STEPS + 1, 3, 4, generator=generator()).to(dtype)
    z_t = q.corrupt(z0, torch.arange(STEPS + 1), generator())
    assert z_t.dtype == dtype
    assert z_t.isfinite().all()
    assert torch.equal(z_t[0], z0[0])
    for s, t in combinations(range(STEPS + 1), 2):
        for eta in (0.0, 1.0):
            mean, deviation = q.back(z_t[t], z0[t], t, s, eta)
            assert mean.isfinite().all(), (s, t)
            assert 0 <= deviation <= 1
    assert (nearest(z_t, torch.randn(VOCAB.size, 4).to(dtype)) < VOCAB.size).all()
