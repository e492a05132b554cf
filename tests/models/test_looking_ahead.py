"""Attention-mask annealing: which later positions a network sees in training."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from rdm.errors import UserError
from rdm.models.llama import Llama
from rdm.training.annealing import AttentionAnnealing
from rdm.vocab import Vocab
from tests.builders import tiny_network

VOCAB = Vocab(size=20)
TOKENS = torch.tensor([[2, 7, 8, 9, 10, 3]])
CHANGED = torch.tensor([[2, 7, 8, 9, 11, 3]])  # at position 4


def states(network: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    memory = network.encode(torch.tensor([[2, 5, 6, 3]]))
    return network.denoise(network.embed(tokens), tokens, memory)


@pytest.fixture(params=["encoder_decoder", "llama"])
def network(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    if request.param == "llama":
        return Llama(VOCAB, 8, 16, heads=2, layers=1, max_length=8, init_std=0.3)
    return tiny_network(VOCAB)


@torch.no_grad()
@pytest.mark.parametrize(("share", "first"), [(0.0, 4), (1.0, 0)])
def test_positions_that_a_change_reaches(network: nn.Module, share: float, first: int) -> None:
    """With share 0 a token changes itself and later positions only; with share 1 all."""
    network.visible_share = share
    changed = (states(network, TOKENS) != states(network, CHANGED)).any(-1)[0]
    assert changed.tolist() == [position >= first for position in range(6)]
    network.eval()  # always everything
    assert (states(network, TOKENS) != states(network, CHANGED)).any(-1).all()


def test_share_of_later_positions(network: nn.Module) -> None:
    network.visible_share = 0.3
    visible = torch.stack([network.visible(6, torch.device("cpu")) for _ in range(500)]).float().mean(0)[0]
    assert (visible.tril() == torch.ones(6, 6).tril()).all()
    assert (visible[torch.ones(6, 6).triu(1).bool()] - 0.3).abs().max() < 0.1


def test_share_grows_with_the_steps(network: nn.Module) -> None:
    callback, module = AttentionAnnealing(steps=4), nn.ModuleList([network])
    shares = []
    for step in range(6):
        callback.on_train_batch_start(SimpleNamespace(global_step=step), module, None, 0)  # type: ignore[arg-type]
        shares.append(network.visible_share)
    assert shares == [0, 0.25, 0.5, 0.75, 1, 1]
    with pytest.raises(UserError, match="must be at least 1, got 0"):
        AttentionAnnealing(steps=0)
