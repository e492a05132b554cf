"""ReMDM: exact distributions against enumeration, the share of denoised tokens, plans with more than T steps."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from rdm.decoding.remasking import Remasking, ReMDMCap, ReMDMConf, ReMDMLoop, ReMDMRescale
from rdm.decoding.routing import Ancestral
from rdm.decoding.transition import Start
from rdm.diffusion import schedule as alphas
from rdm.errors import UserError
from tests.decoding.helpers import (
    MASK,
    NOISES,
    VOCAB,
    ContextDenoiser,
    TableDenoiser,
    decode,
    make_canvas,
    make_process,
    make_state,
    p_value,
    random_table,
)

SIZE, STEPS, ROWS = VOCAB.size, 4, 20_000
ALPHA = np.array([1, 0.9, 0.5, 0.2, 0.05])
SIGMAS = {  # the definitions of the paper
    "cap": (ReMDMCap(0.3), lambda sigma_max, s, t: min(0.3, sigma_max)),
    "rescale": (ReMDMRescale(0.6), lambda sigma_max, s, t: 0.6 * sigma_max),
    "loop": (ReMDMLoop(0.4, alpha_on=0.5), lambda sigma_max, s, t: min(0.4, sigma_max) if s == t == 2 else 0.0),
}
FEW, MANY = 3, 9  # fewer and more than T


def enumerate_pairs(table: np.ndarray, plan: list[int], name: str | None) -> np.ndarray:
    """Two positions under mask noise; ``[V, V]`` at step 0. Without a name ``sigma = 0``: ancestral sampling."""
    now = np.zeros((SIZE, SIZE))
    now[MASK, MASK] = 1
    for t, s in pairwise(plan):
        sigma = SIGMAS[name][1](min(1, (1 - ALPHA[s]) / ALPHA[t]), s, t) if name else 0.0
        denoise = (ALPHA[s] - (1 - sigma) * ALPHA[t]) / (1 - ALPHA[t])
        after = np.zeros_like(now)
        for x in zip(*now.nonzero(), strict=True):
            moves = []
            for n in range(2):
                stay, mask = np.eye(SIZE)[x[n]], np.eye(SIZE)[MASK]
                noisy = denoise * table[t][x][n] + (1 - denoise) * mask
                moves.append(noisy if x[n] == MASK else (1 - sigma) * stay + sigma * mask)
            after += now[x] * np.outer(*moves)
        now = after
    return now


@pytest.mark.parametrize("iterations", [FEW, MANY])
@pytest.mark.parametrize("name", SIGMAS)
def test_distribution_equals_enumeration(name: str, iterations: int) -> None:
    """Chi-square of two dependent positions; ancestral sampling over the same steps has a different distribution."""
    table, process = random_table(STEPS, 2, seed=1), make_process("absorbing", schedule=alphas.Table(ALPHA.tolist()))
    router, denoise = SIGMAS[name][0], TableDenoiser(table)
    decoded, _ = decode(router, process, denoise, make_canvas([2] * ROWS), iterations, 11, temperature=1.0)
    plan = [*denoise.steps, 0]
    cells = decoded.tokens[:, 0] * SIZE + decoded.tokens[:, 1]
    assert len(plan) == iterations + 1
    assert p_value(cells, enumerate_pairs(table, plan, name)) > 1e-3
    assert p_value(cells, enumerate_pairs(table, plan, None)) < 1e-6


def enumerate_conf(table: np.ndarray, plan: list[int]) -> np.ndarray:
    """ReMDM-conf; a state also has the probability of each token when it was denoised."""
    now = {((MASK, 0.0), (MASK, 0.0)): 1.0}
    for t, s in pairwise(plan):
        sigma_max, denoise = min(1, (1 - ALPHA[s]) / ALPHA[t]), (ALPHA[s] - ALPHA[t]) / (1 - ALPHA[t])
        after: dict[Any, float] = {}
        for state, mass in now.items():
            guess = table[t][state[0][0], state[1][0]]
            weights = [np.exp(-p) * (token != MASK) for token, p in state]
            moves = []
            for n, (token, p) in enumerate(state):
                if token == MASK:
                    taken = {(x, guess[n, x]): denoise * guess[n, x] for x in range(2, SIZE)}
                    moves.append({**taken, (MASK, 0.0): 1 - denoise})
                else:
                    sigma = sigma_max * weights[n] / sum(weights)
                    moves.append({(token, p): 1 - sigma, (MASK, 0.0): sigma})
            for (first, p), (second, q) in product(moves[0].items(), moves[1].items()):
                after[first, second] = after.get((first, second), 0.0) + mass * p * q
        now = after
    result = np.zeros((SIZE, SIZE))
    for ((first, _), (second, _)), mass in now.items():
        result[first, second] += mass
    return result


@pytest.mark.parametrize("iterations", [FEW, MANY])
def test_conf_equals_enumeration(iterations: int) -> None:
    """Chi-square of two dependent positions; ancestral sampling has a different distribution."""
    table, process = random_table(STEPS, 2, seed=1), make_process("absorbing", schedule=alphas.Table(ALPHA.tolist()))
    denoise = TableDenoiser(table)
    decoded, _ = decode(ReMDMConf(), process, denoise, make_canvas([2] * ROWS), iterations, 11, temperature=1.0)
    plan, cells = [*denoise.steps, 0], decoded.tokens[:, 0] * SIZE + decoded.tokens[:, 1]
    assert p_value(cells, enumerate_conf(table, plan)) > 1e-3
    assert p_value(cells, enumerate_pairs(table, plan, None)) < 1e-6


@pytest.mark.parametrize("router", [ReMDMCap(0.0), ReMDMRescale(0.0), ReMDMLoop(0.0)], ids=["cap", "rescale", "loop"])
def test_sigma_zero_is_ancestral(router: Remasking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to the bit under mask noise, on the steps that ancestral sampling visits."""
    monkeypatch.setattr(ReMDMLoop, "plan", Remasking.plan)
    process, canvas = make_process("absorbing", 8), make_canvas([9, 5], prefix=1)
    for iterations in range(1, 9):
        denoise = ContextDenoiser(process, 10)
        ours, theirs = (
            decode(each, process, denoise, canvas, iterations, temperature=1.0)[0] for each in (router, Ancestral())
        )
        assert torch.equal(ours.tokens, theirs.tokens)
        assert torch.equal(ours.scores, theirs.scores)
        assert torch.equal(ours.calls, theirs.calls)


@pytest.mark.parametrize("iterations", [8, 20])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("router", [ReMDMCap(0.3), ReMDMRescale(0.3)], ids=["cap", "rescale"])
def test_share_of_denoised_tokens_is_alpha(router: Remasking, noise: str, iterations: int) -> None:
    """Tokens are sent back, yet a share alpha_s is denoised after each iteration, under every noise."""
    process, canvas = make_process(noise, 8), make_canvas([10] * 1000)
    _, seen = decode(router, process, ContextDenoiser(process, 10), canvas, iterations)
    for state, outcome in seen:
        assert float(outcome.denoised.double().mean()) == pytest.approx(1 - state.s / 8, abs=0.02)
        if state.denoised.any():
            assert (state.denoised & ~outcome.denoised).any() == (state.s > 0)


@pytest.mark.parametrize("name", ["cap", "rescale", "conf", "loop"])
@pytest.mark.parametrize("num_steps", [1, 2, 5])
def test_more_steps_than_trained(num_steps: int, name: str) -> None:
    """A plan of any length ends without noise and without NaN, and visits no step below 1."""
    router = ReMDMConf() if name == "conf" else SIGMAS[name][0]
    process, canvas = make_process("absorbing", num_steps), make_canvas([6, 1, 3])
    for iterations in (1, 2, 3, 7, 40):
        denoise = ContextDenoiser(process, 6)
        decoded, seen = decode(router, process, denoise, canvas, iterations, temperature=1.0)
        assert len(denoise.steps) == len(seen) == iterations
        assert min(denoise.steps) >= 1
        assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()
        assert decoded.scores.isfinite().all()


def test_conf_remasks_uncertain_tokens_more_often() -> None:
    """sigma_n = sigma_max * softmax(-p_n) over the denoised tokens; noisy positions follow ancestral sampling."""
    rows = 40_000
    stored = torch.tensor([0.2, 0.9, 0.6, 0.5]).log()
    denoised = torch.tensor([True, True, True, False])
    state = make_state(
        torch.tensor([2, 3, 4, MASK]).repeat(rows, 1),
        denoised=denoised.repeat(rows, 1),
        stored=stored.repeat(rows, 1),
    )  # t = 3 with alpha 1/4, s = 2 with alpha 1/2
    outcome = ReMDMConf().step(state)
    weights = torch.softmax(-torch.tensor([0.2, 0.9, 0.6]), 0)  # sigma_max = min(1, (1 - 1/2) / (1/4)) = 1
    sent_back = (~outcome.denoised[:, :3]).double().mean(0)
    assert sent_back.tolist() == pytest.approx(weights.tolist(), abs=0.01)
    assert float(outcome.denoised[:, 3].double().mean()) == pytest.approx(1 / 3, abs=0.01)  # lambda2


def test_loop_has_three_phases() -> None:
    """Down to the step of alpha 0.9, the same step from t_on to t_off, then down to 0; tokens are sent back between."""
    process = make_process("absorbing", 50)
    plan = ReMDMLoop().plan(Start(process, 100, torch.zeros(0, 0, dtype=torch.bool)))
    assert len(plan) == 101
    assert plan[45:96] == [5] * 51
    assert plan[0] == 50
    assert plan[44] > 5 > plan[97]
    assert plan == sorted(plan, reverse=True)
    assert (plan[-2] > 0, plan[-1]) == (True, 0)
    _, seen = decode(ReMDMLoop(eta=0.1), process, ContextDenoiser(process, 8), make_canvas([8] * 50), 100)
    back = [int((state.denoised & ~outcome.denoised).sum()) for state, outcome in seen]
    assert sum(back[45:95]) == sum(back) > 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ReMDMCap(1.5), r"decoding\.transition\.eta must be a probability in \[0, 1\], got 1\.5"),
        (lambda: ReMDMRescale(-0.1), r"decoding\.transition\.eta must be a probability in \[0, 1\], got -0\.1"),
        (lambda: ReMDMLoop(alpha_on=2), r"decoding\.transition\.alpha_on must be a probability in \[0, 1\], got 2"),
        (lambda: ReMDMLoop(t_on=0.1, t_off=0.2), r"1 > t_on >= t_off > 0, got 0\.1 and 0\.2"),
    ],
)
def test_invalid_arguments(build: type[Remasking], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build()


@pytest.mark.parametrize("steps", [10, 100, 500])
def test_loop_remasks_in_its_second_phase_only(steps: int) -> None:
    """Also where the last phase has more iterations than the level and repeats its first step."""
    process = make_process("absorbing", steps=50)
    router, memo = ReMDMLoop(), dict[str, Any]()
    plan = router.plan(Start(process, steps, torch.zeros(0, 0, dtype=torch.bool), memo))
    rising, final = round(0.45 * steps), max(1, round(0.05 * steps))
    assert len(plan) == steps + 1
    assert len(memo["loop"]) == steps - rising - final
    assert all(plan[iteration - 1] == plan[iteration] for iteration in memo["loop"])
