"""Quantised linear layers: nearly equal results, and the original is not changed."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from rdm.models.int8 import in_int8
from rdm.systems.base import System
from rdm.vocab import Vocab
from tests.builders import (
    batch_from,
    overfit,
    sampler,
    tiny_any_order,
    tiny_autoregressive,
    tiny_cdcd,
    tiny_diffuseq,
    tiny_disco,
    tiny_levenshtein,
    tiny_system,
)
from tests.language_models import tiny_ar_lm, tiny_lm

VOCAB = Vocab(size=40)
SYSTEMS = [
    tiny_system,
    tiny_autoregressive,
    tiny_diffuseq,
    tiny_any_order,
    tiny_disco,
    tiny_levenshtein,
    tiny_cdcd,
    tiny_lm,
    tiny_ar_lm,
]
SOURCE = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 12, 3, 0]])


@pytest.mark.parametrize("build", SYSTEMS)
def test_every_system_can_be_quantised(build: Callable[..., System]) -> None:
    system: System = build(VOCAB).eval()
    before = {name: value.clone() for name, value in system.state_dict().items()}
    quantised = in_int8(system)
    left = [name for name, module in quantised.named_modules() if isinstance(module, nn.Linear)]
    assert all(name.endswith("_embedding.project") for name in left)
    assert all(torch.equal(value, before[name]) for name, value in system.state_dict().items())


def test_logits_are_nearly_equal() -> None:
    torch.manual_seed(0)
    system = tiny_system(VOCAB, dim=64).eval()
    quantised = in_int8(system)
    x, t = torch.randint(5, 40, (2, 6)), torch.tensor([3, 9])
    exact = system.denoiser(x, t, system.denoiser.encode(SOURCE))
    near = quantised.denoiser(x, t, quantised.denoiser.encode(SOURCE))
    allowed = exact > -1e4
    assert torch.equal(near > -1e4, allowed)  # barred ids stay barred
    error = (exact - near)[allowed].square().mean().sqrt() / exact[allowed].std()
    assert 0 < error < 0.05


def test_quantised_system_generates_the_same_text() -> None:
    torch.manual_seed(0)
    pairs = [([5 + i, 9 + i, 13 + i], [30 - i, 25 - i, 20 - i, 10 + i]) for i in range(8)]
    batch, system = batch_from(VOCAB, pairs), tiny_system(VOCAB)
    overfit(system, batch, steps=150, lr=5e-3)
    generated = in_int8(system).generate(batch.source, sampler(), torch.Generator().manual_seed(0))
    assert torch.equal(generated.tokens[:, : batch.target.shape[1]], batch.target)
