"""What the decoder knows of the length of its target, and the length heads."""

import pytest
import torch
from torch import nn

from rdm.models.denoiser import Seq2SeqDenoiser
from rdm.models.layers import Timeless
from rdm.models.length import LengthHead, PooledLengthHead, SourceLengthHead
from rdm.models.target_length import LengthVector, PositionsFromEnd, TargetLength, Untold
from rdm.systems.diffusion import DiffusionSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, overfit, sampler, tiny_network, tiny_system

VOCAB = Vocab(size=20)
REAL = torch.tensor([[True] * 5, [True, True, True, False, False]])


def numbered(kind: type) -> TargetLength:
    """A table whose row ``i`` is ``i`` in every coordinate."""
    table = kind(dim=4, max_length=6)
    nn.init.zeros_(table.table).add_(torch.arange(8.0)[:, None]).div_(table.scale)
    return table


@torch.no_grad()
def test_positions_count_from_the_end() -> None:
    vectors = numbered(PositionsFromEnd)(REAL)
    assert vectors[..., 0].tolist() == [[4, 3, 2, 1, 0], [2, 1, 0, 0, 0]]
    assert numbered(LengthVector)(REAL)[..., 0].tolist() == [[4], [2]]


@pytest.mark.parametrize("kind", [PositionsFromEnd, LengthVector])
def test_an_untrained_table_changes_nothing(kind: type) -> None:
    torch.manual_seed(0)
    network = tiny_network(VOCAB)
    told = Seq2SeqDenoiser(network, Timeless(), kind(network.dim, network.max_length)).eval()
    untold = Seq2SeqDenoiser(network, Timeless(), Untold()).eval()
    source, target = torch.tensor([[2, 7, 8, 3]]), torch.tensor([[2, 1, 1, 9, 3, 0, 0]])
    t = torch.tensor([3])
    assert torch.equal(told(target, t, told.encode(source)), untold(target, t, untold.encode(source)))
    nn.init.normal_(told.target_length.table)
    assert not torch.allclose(told(target, t, told.encode(source)), untold(target, t, untold.encode(source)))


@pytest.mark.parametrize("kind", [PositionsFromEnd, pytest.param(LengthVector, marks=pytest.mark.slow)])
def test_learns_by_heart(kind: type) -> None:
    """Targets of several lengths, decoded with the predicted length; the table and the length head are trained."""
    torch.manual_seed(0)
    pairs = [([5 + i, 6 + i, 7 + i], [6 + (i * 3 + j) % 12 for j in range(2 + i % 4)]) for i in range(8)]
    batch, system = batch_from(VOCAB, pairs), tiny_system(VOCAB)
    network = system.denoiser.network
    head = SourceLengthHead(network.dim, network.max_length)
    denoiser = Seq2SeqDenoiser(network, system.denoiser.time, kind(network.dim, network.max_length), head)
    parts = {"process": system.process, "copies": system.copies, "objective": system.objective}
    system = DiffusionSystem(denoiser, length_factor=0.1, vocab=VOCAB, **parts)
    overfit(system, batch, steps=120, lr=5e-3)
    assert system.denoiser.target_length.table.abs().max() > 1e-3
    assert system.denoiser.length.table.abs().max() > 1e-3
    tokens = system.generate(batch.source, sampler(candidates=1), torch.Generator().manual_seed(0)).tokens
    assert torch.equal(tokens, batch.target)


@torch.no_grad()
def test_source_length_head() -> None:
    """The logits of the mean, plus the row of the source length; a source longer than any target has the last row."""
    head = SourceLengthHead(dim=4, max_length=3)
    states = torch.randn(3, 9, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(9) < torch.tensor([[2], [5], [9]])
    expected = LengthHead.forward(head, states, mask)
    assert torch.equal(head(states, mask), expected)
    head.table.copy_(torch.arange(6.0)[:, None].expand(6, 4))
    torch.testing.assert_close(head(states, mask), expected + torch.tensor([[2.0], [5.0], [5.0]]))


@torch.no_grad()
def test_pooled_length_head_counts() -> None:
    """Padding has no influence, and two sources with the same mean but another number of tokens differ."""
    torch.manual_seed(0)
    head = PooledLengthHead(dim=4, max_length=9)
    state = torch.randn(4)
    mask = torch.arange(6) < torch.tensor([[2], [2], [5]])
    states = torch.where(mask[..., None], state, torch.randn(3, 6, 4))
    logits = head(states, mask)
    torch.testing.assert_close(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])
    assert not torch.allclose(head(0 * states, mask)[0], logits[0]), "the states matter, not only the source length"
