"""The denoiser runs on active sources only, and pruned candidates are never returned."""

import pytest
import torch
from torch import Tensor

from rdm.decoding.routing import Ancestral, Commit, Transition
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.decoding.trace import Trace
from rdm.models.encoder_decoder import Memory
from rdm.vocab import Vocab
from tests.builders import tiny_system

VOCAB = Vocab(size=40)
SOURCE = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 12, 3, 0], [2, 13, 14, 15, 3], [2, 6, 3, 0, 0]])


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
