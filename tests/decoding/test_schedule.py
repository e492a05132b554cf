"""Decoding schedules: the number of denoised tokens after each iteration, and the visited steps."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.decoding.routing import Unconditional
from rdm.decoding.transition import Start
from tests.decoding.helpers import SCHEDULES, ContextDenoiser, decode, make_canvas, make_process

ITERATIONS = st.integers(1, 200).flatmap(lambda m: st.tuples(st.integers(1, m), st.just(m)))


def denoised(name: str, iteration: int, iterations: int, length: int) -> int:
    return int(SCHEDULES[name].denoised(iteration, iterations, torch.tensor([length])))


@pytest.mark.parametrize(
    ("name", "length", "iteration", "iterations", "expected"),
    [
        # linear: N - floor(N (1 - i/M))
        ("linear", 10, 3, 10, 3),
        ("linear", 10, 9, 10, 9),  # 10 * (1 - 0.9) = 0.9999... counts as one token
        ("linear", 8, 1, 4, 2),
        ("linear", 10, 1, 4, 3),  # 7.5 stay noisy: 7
        ("linear", 7, 2, 3, 5),  # 2.33 stay noisy: 2
        ("linear", 1, 1, 2, 1),  # 0.5 stay noisy: 0
        # cosine: N - floor(N cos(pi i / 2M))
        ("cosine", 10, 3, 10, 2),  # cos 27 deg = 0.891
        ("cosine", 10, 5, 10, 3),  # cos 45 deg = 0.707
        ("cosine", 10, 2, 3, 5),  # cos 60 deg = 0.5
        ("cosine", 10, 9, 10, 9),  # cos 81 deg = 0.156
        ("cosine", 3, 1, 50, 1),  # cos 1.8 deg = 0.9995
        # cosine_paper: floor(N cos(pi (1 - i/M) / 2))
        ("cosine_paper", 10, 3, 10, 4),  # cos 63 deg = 0.454
        ("cosine_paper", 10, 5, 10, 7),  # cos 45 deg = 0.707
        ("cosine_paper", 10, 1, 3, 5),  # cos 60 deg = 0.5
        ("cosine_paper", 10, 1, 10, 1),  # cos 81 deg = 0.156
        ("cosine_paper", 3, 1, 10, 0),  # 3 * 0.156 = 0.47
    ],
)
def test_counts(name: str, length: int, iteration: int, iterations: int, expected: int) -> None:
    """Values computed by hand, including borderline cases of rounding."""
    assert denoised(name, iteration, iterations, length) == expected


def test_counts_of_several_lengths() -> None:
    assert SCHEDULES["linear"].denoised(1, 4, torch.tensor([8, 10, 0])).tolist() == [2, 3, 0]


@settings(deadline=None, derandomize=True)
@given(at=ITERATIONS, length=st.integers(0, 1000))
def test_linear_is_exact(at: tuple[int, int], length: int) -> None:
    """Linear equals integer arithmetic for every N, i and M."""
    i, m = at
    assert denoised("linear", i, m, length) == length - length * (m - i) // m


@pytest.mark.parametrize("name", SCHEDULES)
@settings(deadline=None, derandomize=True)
@given(iterations=st.integers(1, 120), length=st.integers(0, 1000))
def test_monotone_and_complete(name: str, iterations: int, length: int) -> None:
    """Counts never decrease, lie in 0..N and end at N for every M; noise rates agree with them."""
    counts = [denoised(name, i, iterations, length) for i in range(1, iterations + 1)]
    rates = [SCHEDULES[name].noise_rate(i, iterations) for i in range(1, iterations + 1)]
    assert counts == sorted(counts)
    assert counts[0] >= 0
    assert counts[-1] == length
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert all(abs(length * (1 - rate) - count) < 1 + 1e-6 for count, rate in zip(counts, rates, strict=True))


@pytest.mark.parametrize("iterations", [2, 5, 10, 16])
def test_pace_of_the_cosine_schedules(iterations: int) -> None:
    """Compared with linear, cosine denoises fewer tokens first and cosine_paper more."""
    inner = range(1, iterations)
    counts = {name: [denoised(name, i, iterations, 1000) for i in inner] for name in SCHEDULES}
    for slow, even, fast in zip(counts["cosine"], counts["linear"], counts["cosine_paper"], strict=True):
        assert slow < even < fast
    for name, sign in (("cosine", 1), ("cosine_paper", -1)):
        gains = torch.tensor([0, *counts[name], 1000]).diff().diff() * sign
        assert (gains >= -1).all(), f"{name} changes pace"
        assert gains.sum() > 0


def test_cosine_matches_the_formula() -> None:
    """Both cosine schedules equal the formulas of their docstrings."""
    for m in (7, 10, 50):
        for i in range(1, m):
            assert denoised("cosine", i, m, 37) == 37 - math.floor(37 * math.cos(math.pi * i / (2 * m)) + 1e-9)
            s_over_t = (m - i) / m
            assert denoised("cosine_paper", i, m, 37) == math.floor(37 * math.cos(math.pi * s_over_t / 2) + 1e-9)


def plan(steps: int, iterations: int) -> list[int]:
    free = torch.ones(1, 1, dtype=torch.bool)
    return Unconditional().plan(Start(make_process("absorbing", steps), iterations, free))


@settings(deadline=None, derandomize=True)
@given(at=ITERATIONS)
def test_plan_is_even(at: tuple[int, int]) -> None:
    """M strides from T to 0, each at least one, that differ by at most one."""
    iterations, steps = at
    grid = plan(steps, iterations)
    strides = [t - s for t, s in pairwise(grid)]
    assert (grid[0], grid[-1], len(strides)) == (steps, 0, iterations)
    assert min(strides) >= 1
    assert max(strides) - min(strides) <= 1


def test_network_is_called_at_the_planned_steps() -> None:
    """Never at step 0; one transition can be used with different M in any order."""
    transition, process, canvas = Unconditional(), make_process("absorbing", 10), make_canvas([5, 3])
    for iterations in (10, 3, 7, 1, 2, 10):
        denoise = ContextDenoiser(process, 5)
        _, seen = decode(transition, process, denoise, canvas, iterations)
        grid = plan(10, iterations)
        assert denoise.steps == grid[:-1]
        assert min(denoise.steps) >= 1
        assert [(state.t, state.s) for state, _ in seen] == list(pairwise(grid))
        assert [(state.iteration, state.iterations) for state, _ in seen] == [
            (i, iterations) for i in range(1, iterations + 1)
        ]
