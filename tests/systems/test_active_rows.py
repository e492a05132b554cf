"""Decoding runs the network on the candidates that still have noise, and counts the calls of all of them."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from rdm.decoding.adaptive import Threshold
from rdm.systems.denoising import ActiveRows, BoundDenoiser
from rdm.vocab import Vocab
from tests.builders import tiny_system
from tests.decoding.helpers import Recorder, make_sampler

VOCAB = Vocab(size=40)
SOURCE = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 12, 3, 0], [2, 5, 6, 3, 0]])


@pytest.mark.parametrize(
    ("active", "rows"),
    [
        ([[0, 1], [2, 3], [4, 5]], 6),
        ([[0, 1], [2], [4]], 6),
        ([[1], [2], [5]], 3),
        ([[], [3], [4, 5]], 4),
        ([[], [], [5]], 1),
    ],
)
def test_logits_are_those_of_all_rows(active: list[list[int]], rows: int) -> None:
    """Two copies of three sources: the requested logits are the same in the same order, from fewer rows."""
    torch.manual_seed(0)
    denoiser = tiny_system(VOCAB).eval().denoiser
    memory = denoiser.encode(SOURCE)
    x_t, t = torch.randint(5, 40, (6, 7)), torch.arange(1, 7)
    positions = torch.zeros(6, 7, dtype=torch.bool)
    for source in active:
        for row in source:
            positions[row, torch.randperm(7)[: row % 3 + 1]] = True
    run: list[int] = []
    forward = type(denoiser).forward

    def count(self: torch.nn.Module, x_t: Tensor, *others: object) -> Tensor:
        run.append(len(x_t))
        return forward(self, x_t, *others)  # type: ignore[arg-type]

    with torch.inference_mode(), patch.object(type(denoiser), "forward", count):
        expected = BoundDenoiser(denoiser, memory)(x_t, t, positions)
        found = ActiveRows(denoiser, memory)(x_t, t, positions)
    torch.testing.assert_close(found, expected)
    assert run == [6, rows]


def test_calls_are_those_of_all_candidates() -> None:
    """Candidates of different lengths need different numbers of calls; the returned one is not counted alone."""
    torch.manual_seed(0)
    system, recorder = tiny_system(VOCAB).eval(), Recorder()
    decoding = make_sampler(Threshold(1.0), 20, length_candidates=4)
    hypotheses = system.generate(SOURCE, decoding, torch.Generator().manual_seed(0), recorder)
    calls = sum(state.noisy.any(1).long() for state, _ in recorder)
    assert isinstance(calls, Tensor)
    assert hypotheses.calls is not None
    assert len(calls.unique()) > 1, "otherwise this shows nothing"
    assert hypotheses.calls.tolist() == pytest.approx(calls.view(3, 4).float().mean(1).tolist())
