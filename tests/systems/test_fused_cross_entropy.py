"""``model.fused_cross_entropy=true`` changes the memory of a training step, not its loss or gradient."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rdm import cross_entropy
from rdm.data.batch import Batch
from rdm.data.pairs import PairsDataModule
from rdm.diffusion.objective import Objective
from rdm.diffusion.passes import Glancing, OwnPredictions
from rdm.diffusion.reweighting import Linear
from rdm.diffusion.token_weights import FocalCrossEntropy, PathWeightedCrossEntropy
from rdm.models.network import Restricted
from rdm.models.self_conditioning import PreviousGuess
from rdm.systems.base import System
from rdm.vocab import Vocab
from tests.builders import (
    RECIPES,
    batch_of,
    sampler,
    tiny_any_order,
    tiny_autoregressive,
    tiny_disco,
    tiny_levenshtein,
    tiny_system,
    toy_data,
)
from tests.language_models import tiny_any_order_lm, tiny_ar_lm, tiny_lm

OBJECTIVES: dict[str, Objective] = {
    "sundae": OwnPredictions(Linear()),
    "proseco": OwnPredictions(Linear(), temperature=0.0),
    "glancing": Glancing(Linear()),
    "focal": FocalCrossEntropy(Linear()),
    "path_weighted": PathWeightedCrossEntropy(Linear()),
}


def self_conditioned(vocab: Vocab) -> System:
    system = tiny_system(vocab)
    system.denoiser.self_conditioning = PreviousGuess(32)
    return system


SYSTEMS: dict[str, Callable[[Vocab], System]] = {
    **{name: partial(tiny_system, name=name) for name in RECIPES},
    **{name: partial(tiny_system, objective=objective) for name, objective in OBJECTIVES.items()},
    "self_conditioned": self_conditioned,
    "any_order": tiny_any_order,
    "disco": tiny_disco,
    "levt": tiny_levenshtein,
    "ar": tiny_autoregressive,
    "lm": partial(tiny_lm, max_length=64),
    "any_order_lm": partial(tiny_any_order_lm, max_length=64),
    "ar_lm": partial(tiny_ar_lm, max_length=64),
}


def fused(system: System) -> System:
    (network,) = (module for module in system.modules() if isinstance(module, Restricted))
    network.fused_cross_entropy = True
    return system


def built(name: str, vocab: Vocab) -> System:
    torch.manual_seed(0)
    return SYSTEMS[name](vocab)


def batch_for(system: System, data: PairsDataModule) -> Batch:
    """Six pairs, or their targets without a prefix."""
    batch = batch_of(data, list(range(6)))
    return replace(batch, source=batch.source[:, :0]) if system.open_ended else batch


@pytest.fixture
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "PRODUCT_ROWS", 7)


@pytest.mark.usefixtures("several_chunks")
@pytest.mark.parametrize(
    ("name", "autocast"),
    [*((name, False) for name in SYSTEMS), ("rdm_absorbing", True), ("multinomial", True), ("ar", True)],
)
def test_loss_and_gradient_stay_the_same(name: str, autocast: bool) -> None:
    data = toy_data()
    found = []
    for system in (built(name, data.vocab), fused(built(name, data.vocab))):
        batch = batch_for(system, data)
        torch.manual_seed(3)  # of dropout; the rest is drawn from the generator
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            terms = system.loss(batch, torch.Generator().manual_seed(1))
        loss = torch.stack([term.factor * term.total for term in terms]).sum()
        loss.backward()
        gradients = {name: p.grad for name, p in system.named_parameters() if p.grad is not None}
        found.append((torch.stack([term.total.detach() for term in terms]), gradients))
    (losses, gradients), (fused_losses, fused_gradients) = found
    assert gradients.keys() == fused_gradients.keys()
    tolerance = 3e-2 if autocast else 1e-5
    torch.testing.assert_close(fused_losses, losses, rtol=tolerance, atol=tolerance)
    largest = max(gradient.abs().max() for gradient in gradients.values())
    assert largest > 1e-2
    for name, gradient in gradients.items():
        assert (fused_gradients[name] - gradient).abs().max() < tolerance * largest, name


class LargestLogits(TorchDispatchMode):
    """The largest number of rows of a result with ``size`` columns."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.rows = size, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and each.dim() == 2 and each.shape[1] == self.size:
                self.rows = max(self.rows, len(each))
        return result


@pytest.mark.usefixtures("several_chunks")
@pytest.mark.parametrize("name", ["rdm_absorbing", "multinomial", "ar", "lm", "ar_lm", "levt", "disco"])
def test_no_more_than_a_chunk_of_logits(name: str) -> None:
    data = toy_data()
    rows = []
    for system in (built(name, data.vocab), fused(built(name, data.vocab))):
        batch = batch_for(system, data)
        with LargestLogits(data.vocab.size) as largest:
            terms = system.loss(batch, torch.Generator().manual_seed(1))
            torch.stack([term.total for term in terms]).sum().backward()
        rows.append(largest.rows)
    # 32 is the transposed output embedding; all other results have the rows of a chunk.
    assert rows[0] > 32 >= rows[1]


def test_decoding_computes_logits() -> None:
    """Without a gradient the network returns a tensor, with the weights of int8 if it is quantised."""
    data = toy_data()
    source = batch_of(data, [0, 1]).source
    outputs = [
        system.eval().generate(source, sampler()).tokens
        for system in (built("rdm_absorbing", data.vocab), fused(built("rdm_absorbing", data.vocab)))
    ]
    assert torch.equal(*outputs)
