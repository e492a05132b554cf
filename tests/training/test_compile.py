"""torch.compile finds one graph in a training step and in a decoding iteration, whatever the shapes of the batch.

The backend "eager" traces without compiling: it finds graph breaks and new graphs, and needs no compiler.
"""

from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo as dynamo
from torch import Tensor, nn

from rdm.data.batch import Batch
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.decoding.transition import Outcome, State
from rdm.diffusion.noised import NoisedBatch
from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.systems.diffusion import DiffusionSystem
from tests.builders import RECIPES, batch_of, tiny_system, toy_data
from tests.decoding.helpers import ROUTERS


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding is assumed, not read; graphs of other tests are forgotten."""
    monkeypatch.setattr(EncoderDecoder, "_padded", lambda network, mask: True)
    dynamo.reset()
    dynamo.utils.counters.clear()


def noised_batch(system: DiffusionSystem, batch: Batch, seed: int) -> tuple[NoisedBatch, tuple[Tensor, ...]]:
    """Noised copies, and the positions of the loss: finding them is the only synchronisation of a step."""
    noised = system.copies(system.process, batch.target, torch.Generator().manual_seed(seed))
    return noised, system.objective.positions(noised).nonzero(as_tuple=True)


def network_and_loss(
    system: DiffusionSystem, noised: NoisedBatch, source: Tensor, positions: tuple[Tensor, ...]
) -> Tensor:
    logits = system.denoiser(noised.x_t, noised.t, system.denoiser.encode(source), positions)
    return system.objective.losses(logits, noised.at(positions), system.process).sum()


@pytest.mark.parametrize(
    "name",
    [
        name if name == "rdm_absorbing" else pytest.param(name, marks=pytest.mark.slow)
        for name in RECIPES
        if name not in ("cmlm_smart", "cmlmc")  # several passes
    ],
)
def test_forward_pass_and_loss_are_one_graph(name: str) -> None:
    """``fullgraph=True`` raises at a graph break; batches of other shapes use the same graph."""
    data = toy_data()
    system = tiny_system(data.vocab, name)
    compiled = torch.compile(partial(network_and_loss, system), backend="eager", fullgraph=True, dynamic=True)
    for number in range(4):
        batch = batch_of(data, list(range(5 * number, 6 * number + 4)))
        noised, positions = noised_batch(system, batch, number)
        loss = compiled(noised, batch.source, positions)
        torch.testing.assert_close(loss, network_and_loss(system, noised, batch.source, positions))
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
def test_forward_and_backward_pass_are_one_graph(fused: bool) -> None:
    """``aot_eager`` also traces the backward pass; gradients stay the same, and shapes share the graph."""
    data = toy_data()
    system = tiny_system(data.vocab)
    system.denoiser.network.fused_cross_entropy = fused
    compiled = torch.compile(partial(network_and_loss, system), backend="aot_eager", fullgraph=True, dynamic=True)
    for number in range(4):
        batch = batch_of(data, list(range(5 * number, 6 * number + 4)))
        noised, positions = noised_batch(system, batch, number)
        gradients = []
        for step in (compiled, partial(network_and_loss, system)):
            system.zero_grad()
            step(noised, batch.source, positions).backward()
            gradients.append({name: p.grad for name, p in system.named_parameters() if p.grad is not None})
        assert gradients[0].keys() == gradients[1].keys()
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-5, msg=name)
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("router", ["uncond", "cond", "commit"])
def test_decoding_iteration_is_one_graph(router: str) -> None:
    """Network, proposal and router, from known positions to the next tokens; iterations and batches share the graph."""
    data = toy_data()
    system = tiny_system(data.vocab).eval()
    sampler = Sampler(router, 3, ROUTERS[router](), Linear(), length_candidates=2)

    @torch.compile(backend="eager", fullgraph=True, dynamic=True)
    def iterate(state: dict[str, Any], t: Tensor, memory: Memory, positions: tuple[Tensor, ...]) -> Outcome:
        tokens, active = state["tokens"], state["active"]
        logits = system.denoiser(tokens, t, memory, positions)
        proposed, scored = sampler.proposal(logits)
        proposal = tokens.masked_scatter(active, proposed)
        scores = state["stored"].masked_scatter(active, scored)
        fixed = {"process": system.process, "iteration": 1, "iterations": 3, "t": 2, "s": 1, "noise_rate": 0.5}
        more = {"logits": logits, "proposal": proposal, "scores": scores, "sample": sampler.proposal.sample}
        return sampler.transition.step(State(**fixed, **state, **more))

    def check(memory: Memory, state: State, outcome: Outcome) -> None:
        names = ("tokens", "free", "denoised", "stored", "count", "rows", "active")
        positions = state.active.nonzero(as_tuple=True)
        found = iterate({name: getattr(state, name) for name in names}, state.step_tensors()[0], memory, positions)
        assert torch.equal(found.tokens, outcome.tokens)
        assert torch.equal(found.denoised, outcome.denoised)

    for sources in ([0, 1, 2], [3, 4, 5, 6]):
        source = batch_of(data, sources).source
        with torch.inference_mode():
            system.generate(source, sampler, observer=partial(check, system.denoiser.encode(source)))
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
