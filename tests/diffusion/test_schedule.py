"""Noise schedules: values by hand, monotonicity, and invalid arguments."""

import math

import pytest
import torch

from rdm.diffusion.schedule import Cosine, Linear, Schedule, Sqrt, Table
from rdm.errors import UserError
from tests.diffusion.exact import SCHEDULES, STEPS, alphas, build_schedule

ROOT2, ROOT3 = math.sqrt(2), math.sqrt(3)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Linear(4), [1, 3 / 4, 1 / 2, 1 / 4, 0]),
        (Linear(3), [1, 2 / 3, 1 / 3, 0]),
        (Sqrt(4), [1, 1 / 2, 1 - ROOT2 / 2, 1 - ROOT3 / 2, 0]),
        (Cosine(4, s=0), [1, (2 + ROOT2) / 4, 1 / 2, (2 - ROOT2) / 4, 0]),
        (Cosine(1, s=1), [1, 0]),  # cos^2(pi/4) = 1/2 cancels
        (Cosine(2, s=1), [1, 2 * math.cos(3 * math.pi / 8) ** 2, 0]),
        (Cosine(2), [1, math.cos(0.508 / 1.008 * math.pi / 2) ** 2 / math.cos(0.008 / 1.008 * math.pi / 2) ** 2, 0]),
        (Table([1, 0.9, 0.2, 0.1]), [1, 0.9, 0.2, 0.1]),
    ],
)
def test_values(schedule: Schedule, expected: list[float]) -> None:
    """``alpha_0 .. alpha_T`` follow the definition to float64 precision."""
    steps = torch.arange(schedule.num_steps + 1)
    torch.testing.assert_close(schedule.alpha(steps), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_agree_with_the_reference(name: str) -> None:
    """The reference alphas of the other tests are those of the schedules."""
    actual = build_schedule(name).alpha(torch.arange(STEPS + 1))
    torch.testing.assert_close(actual, torch.tensor(alphas(name), dtype=torch.float64), rtol=0, atol=1e-14)


@pytest.mark.parametrize("steps", [1, 2, 7, 50, 1000])
@pytest.mark.parametrize("kind", [Linear, Cosine, Sqrt])
def test_alpha_decreases_from_one_to_zero(kind: type[Schedule], steps: int) -> None:
    """1 at 0 exactly (log(1 - alpha_0) is taken), 0 at T, strictly decreasing, float64."""
    schedule = kind(steps)
    alpha = schedule.alpha(torch.arange(steps + 1))
    assert schedule.num_steps == steps
    assert alpha.dtype == torch.float64
    assert alpha[0].item() == 1
    assert 0 <= alpha[-1].item() < 1e-30
    assert (alpha.diff() < 0).all()


@pytest.mark.parametrize("s", [0.0, 0.008, 0.02, 0.1])
@pytest.mark.parametrize("size", [1, 3, 8, 33])
def test_cosine_starts_at_exactly_one(s: float, size: int) -> None:
    """Also for sizes that use the vectorised cosine of torch."""
    assert (Cosine(50, s).alpha(torch.zeros(size, dtype=torch.long)) == 1).all()


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_alpha_is_elementwise(name: str, shape: tuple[int, ...]) -> None:
    """For tensors of any shape."""
    schedule = build_schedule(name)
    steps = torch.randint(0, STEPS + 1, shape, generator=torch.Generator().manual_seed(0))
    alpha = schedule.alpha(steps)
    assert alpha.shape == steps.shape
    assert alpha.flatten().tolist() == pytest.approx([alphas(name)[t] for t in steps.flatten().tolist()])


@pytest.mark.parametrize("steps", [0, -1])
@pytest.mark.parametrize("kind", [Linear, Cosine, Sqrt])
def test_invalid_num_steps_raises(kind: type[Schedule], steps: int) -> None:
    """At least one step is needed."""
    with pytest.raises(UserError, match="num_steps"):
        kind(steps)


@pytest.mark.parametrize(
    "table",
    [[], [1.0], [0.9, 0.5, 0.0], [1.0, 0.5, 0.6, 0.0], [1.0, 0.5, -0.1], [1.0, math.nan, 0.0]],
    ids=["empty", "no step", "noisy start", "rising", "negative", "nan"],
)
def test_invalid_table_raises(table: list[float]) -> None:
    """A table starts at 1, never rises and stays non-negative."""
    with pytest.raises(UserError, match="alphas of the noise schedule"):
        Table(table)


def test_table_is_interpolated() -> None:
    """Linearly between the listed values; these are exact, and so is a table with one value per step."""
    schedule = Table([1, 0.6, 0.1], num_steps=6)
    expected = [1, 1 - 0.4 / 3, 1 - 0.8 / 3, 0.6, 0.6 - 0.5 / 3, 0.6 - 1 / 3, 0.1]
    assert schedule.num_steps == 6
    assert schedule.alpha(torch.arange(7)).tolist() == pytest.approx(expected, abs=1e-15)
    assert schedule.alpha(torch.tensor([0, 3, 6])).tolist() == [1, 0.6, 0.1]
    steps = torch.arange(STEPS + 1)
    listed = alphas("table")
    assert Table(listed, num_steps=STEPS).alpha(steps).tolist() == Table(listed).alpha(steps).tolist() == listed
    torch.testing.assert_close(Table([1, 0], num_steps=50).alpha(torch.arange(51)), Linear(50).alpha(torch.arange(51)))
