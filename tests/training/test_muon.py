"""Muon against singular value decompositions and against torch's implementation; sharded and resumed runs."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rdm.training import muon
from rdm.training.muon import MARGIN, MINIMAX, Muon, orthogonalize, orthogonalize_all
from tests.training.muon_steps import train_in_two_parts

JORDAN = ((3.4445, -4.7750, 2.0315),) * 5
SHAPES = [(6, 6), (12, 6), (6, 12), (6, 6), (3, 7), (1, 5)]


def matrices(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def polynomial(x: Tensor) -> Tensor:
    for a, b, c in MINIMAX:
        x = a * x + b * x**3 + c * x**5
    return x


def test_factors_are_those_of_the_singular_value_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "computes_in_bf16", lambda: False)
    for matrix, factor in zip(matrices(), orthogonalize_all(matrices(), MINIMAX), strict=True):
        u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
        expected = u @ torch.diag(polynomial(s / (MARGIN * s.norm()))) @ v
        torch.testing.assert_close(factor.double(), expected, rtol=0, atol=1e-4)


def test_half_precision() -> None:
    """Rounding moves singular values within the interval, but not out of it."""
    for matrix, factor in zip(matrices(), orthogonalize_all(matrices(), MINIMAX), strict=True):
        values = torch.linalg.svdvals(factor)
        assert 0.4 < values.min() <= values.max() < 1.65
        assert (matrix * factor).sum() > 0.7 * torch.linalg.svdvals(matrix).sum()


def test_singular_values_end_near_one() -> None:
    x = torch.logspace(-3, 0, 20_000, dtype=torch.float64) / MARGIN
    assert 0.43 < polynomial(x).min() < polynomial(x).max() < 1.62


@pytest.mark.parametrize(("index", "low"), [(0, 0.02), (1, 0.02)])
def test_iterations_are_minimax(index: int, low: float) -> None:
    """The error alternates between its extremes four times: no other odd polynomial of degree 5 has a smaller one."""
    high = 1.0 if index == 0 else 1.84596
    x = torch.linspace(low * high, high, 200_000, dtype=torch.float64)
    a, b, c = MINIMAX[index]
    error = a * x + b * x**3 + c * x**5 - 1
    inner = ((error[1:-1] - error[:-2]) * (error[2:] - error[1:-1]) < 0).nonzero().flatten() + 1
    extremes = error[torch.cat([torch.tensor([0]), inner, torch.tensor([len(x) - 1])])]
    assert len(extremes) == 4
    assert torch.equal(extremes.sign(), torch.tensor([-1.0, 1, -1, 1]).double())
    torch.testing.assert_close(extremes.abs(), extremes.abs().mean().expand(4), rtol=2e-3, atol=0)


def test_zero_matrix_stays_zero() -> None:
    assert not orthogonalize(torch.zeros(2, 3, 4)).any()


def test_steps_are_those_of_torch() -> None:
    """With torch's coefficients: momentum, weight decay and the factor of the learning rate, over several steps."""
    ours, theirs = ([nn.Parameter(matrix.clone()) for matrix in matrices()] for _ in range(2))
    first = Muon(ours, lr=0.1, weight_decay=0.2, momentum=0.9, coefficients=JORDAN)
    second = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.2, momentum=0.9)
    for seed in range(1, 5):
        for parameter, other, gradient in zip(ours, theirs, matrices(seed), strict=True):
            parameter.grad, other.grad = gradient, gradient.clone()
        first.step()
        second.step()
    for parameter, other, before in zip(ours, theirs, matrices(), strict=True):
        assert (other - before).abs().max() > 0.1
        torch.testing.assert_close(parameter, other, rtol=0, atol=0.03)  # bfloat16, and the margin


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="Invalid lr value: -1"):
        Muon([nn.Parameter(torch.zeros(2, 2))], lr=-1)
    with pytest.raises(ValueError, match="matrices only"):
        Muon([nn.Parameter(torch.zeros(2))])


def test_parameters_without_gradient_are_left_alone() -> None:
    still, moved = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    moved.grad = torch.ones(2, 2)
    Muon([still, moved]).step()
    assert torch.equal(still, torch.ones(2, 2))
    assert not torch.equal(moved, torch.ones(2, 2))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["sharded", "ddp"])
def test_two_processes_equal_one(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, EMA weights and momenta of a run that was resumed, with clipping and accumulation."""
    monkeypatch.setattr(muon, "computes_in_bf16", muon.computes_in_bf16)  # restored after the test
    train_in_two_parts(tmp_path / "one.pt")
    file = tmp_path / "ranks.pt"
    command = [sys.executable, "-m", "tests.training.muon_steps", str(file), "2", strategy]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    one, ranks = torch.load(tmp_path / "one.pt"), torch.load(file)
    assert any((one["ema"][name] - each).abs().max() > 1e-3 for name, each in one["weights"].items())
    torch.testing.assert_close(ranks, one, rtol=0, atol=2e-5)
