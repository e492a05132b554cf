"""torch.compile finds one graph in the forward pass with its loss, and few of them in an epoch of batches.

The backend "eager" traces without compiling: it finds graph breaks and new graphs, and needs no compiler.
"""

import pytest
import torch
import torch._dynamo as dynamo
from torch import Tensor, nn

from rdm.diffusion.noised import NoisedBatch
from rdm.models.encoder_decoder import EncoderDecoder
from tests.builders import RECIPES, batch_of, tiny_system, toy_data


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding is assumed, not read; graphs of other tests are forgotten."""
    monkeypatch.setattr(EncoderDecoder, "_padded", lambda network, mask: True)
    dynamo.reset()
    dynamo.utils.counters.clear()


@pytest.mark.parametrize(
    "name",
    [
        name if name == "rdm_absorbing" else pytest.param(name, marks=pytest.mark.slow)
        for name in RECIPES
        if name not in ("cmlm_smart", "cmlmc")  # several passes
    ],
)
def test_forward_pass_and_loss_are_one_graph(name: str) -> None:
    """``fullgraph=True`` raises at a graph break. The positions are found before: the only synchronisation."""
    data = toy_data()
    system, batch = tiny_system(data.vocab, name), batch_of(data, [0, 1, 2, 3])
    noised = system.copies(system.process, batch.target, torch.Generator().manual_seed(0))
    positions = system.objective.positions(noised).nonzero(as_tuple=True)

    def loss(noised: NoisedBatch, source: Tensor, positions: tuple[Tensor, ...]) -> Tensor:
        logits = system.denoiser(noised.x_t, noised.t, system.denoiser.encode(source), positions)
        return system.objective.losses(logits, noised.at(positions), system.process).sum()

    compiled = torch.compile(loss, backend="eager", fullgraph=True)(noised, batch.source, positions)
    torch.testing.assert_close(compiled, loss(noised, batch.source, positions))
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
def test_layers_have_few_graphs_in_an_epoch() -> None:
    """As ``compile=true``: every layer, with dynamic shapes; batches of many sizes and lengths share their graphs."""
    data = toy_data(train=600, max_tokens=256)
    system = tiny_system(data.vocab).train()
    stacks = [module for module in system.modules() if isinstance(module, nn.ModuleList)]
    for layer in (layer for stack in stacks for layer in stack):
        layer.compile(dynamic=True, backend="eager", fullgraph=True)
    shapes, graphs = set(), []
    for batch in data.train_dataloader():
        system.loss(batch)
        shapes.add((*batch.source.shape, batch.target.shape[1]))
        graphs.append(dynamo.utils.counters["stats"]["unique_graphs"])
    assert len(shapes) > 10
    assert graphs[-1] <= 6
    assert graphs[len(graphs) // 2] == graphs[-1], "graphs are still added in the second half of the epoch"
