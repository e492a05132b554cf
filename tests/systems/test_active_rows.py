"""Decoding runs the network on sources and candidates that still have noise, and counts the calls of all of them."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from rdm.decoding.adaptive import Threshold
from rdm.decoding.routing import Ancestral, Commit, Transition
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.decoding.trace import Trace
from rdm.models.encoder_decoder import Memory
from rdm.systems.denoising import ActiveRows, BoundDenoiser
from rdm.vocab import Vocab
from tests.builders import tiny_system
from tests.decoding.helpers import Recorder, make_sampler

VOCAB = Vocab(size=40)
SOURCE = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 12, 3, 0], [2, 13, 14, 15, 3], [2, 6, 3, 0, 0]])


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
    memory = denoiser.encode(SOURCE[:3])
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
    hypotheses = system.generate(SOURCE[:3], decoding, torch.Generator().manual_seed(0), recorder)
    calls = sum(state.noisy.any(1).long() for state, _ in recorder)
    assert isinstance(calls, Tensor)
    assert hypotheses.calls is not None
    assert len(calls.unique()) > 1, "otherwise this shows nothing"
    assert hypotheses.calls.tolist() == pytest.approx(calls.view(3, 4).float().mean(1).tolist())


@pytest.mark.parametrize("transition", [Ancestral(), Commit()], ids=["ancestral", "commit"])
def test_the_denoiser_runs_on_active_sources_only(transition: Transition, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    system = tiny_system(VOCAB).eval()
    lengths = torch.tensor([[1], [12], [2], [3]])
    decoding = Sampler("test", 20, transition, Linear(), length_candidates=1)
    decoding.candidate_lengths = lambda logits: lengths  # type: ignore[method-assign]
    rows_seen: list[int] = []
    forward = system.denoiser.forward

    def counting(x_t: Tensor, t: Tensor, memory: Memory, positions: Tensor) -> Tensor:
        rows_seen.append(len(x_t))
        assert len(memory) == len(x_t)
        return forward(x_t, t, memory, positions)

    copied: list[Tensor] = []
    select = Memory.select
    monkeypatch.setattr(Memory, "select", lambda memory, sources: copied.append(sources) or select(memory, sources))
    monkeypatch.setattr(system.denoiser, "forward", counting)
    left = system.generate(SOURCE, decoding, torch.Generator().manual_seed(0))
    assert rows_seen == sorted(rows_seen, reverse=True)
    assert rows_seen[0] == 4
    assert rows_seen[-1] < 4
    assert left.calls is not None
    assert int(left.calls.sum()) == sum(rows_seen)
    assert [len(sources) for sources in copied] == sorted({*rows_seen} - {4}, reverse=True)
    assert len(copied) < sum(rows < 4 for rows in rows_seen)
    # Equal to decoding with all sources in every iteration.
    monkeypatch.setattr(
        system,
        "denoise",
        lambda memory: lambda tokens, t, positions: forward(tokens, t, memory, positions),
    )
    stayed = system.generate(SOURCE, decoding, torch.Generator().manual_seed(0))
    assert torch.equal(left.tokens, stayed.tokens)
    torch.testing.assert_close(left.scores, stayed.scores)


def test_the_chosen_row_is_found_in_the_trace_after_pruning() -> None:
    torch.manual_seed(2)
    system, trace = tiny_system(VOCAB).eval(), Trace()
    decoding = Sampler("test", 6, Commit(), Linear(), length_candidates=5, prune_after=2, keep_candidates=2)
    best = system.generate(SOURCE, decoding, torch.Generator().manual_seed(0), trace)
    assert best.candidates is not None
    assert best.candidates.tokens.shape[:2] == (4, 2)
    assert len({tuple(frame.tokens.shape) for frame in trace.frames}) == 1
    for source, row in enumerate(best.rows.tolist()):
        assert row // 5 == source
        assert torch.equal(trace.frames[-1].tokens[row], best.tokens[source])
