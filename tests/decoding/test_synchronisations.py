"""Device synchronisations of a decoding iteration, for every transition: the number in docs/scaling.md."""

import pytest
import torch
from torch import Tensor

from rdm.decoding.routing import PosteriorStep
from rdm.models.encoder_decoder import EncoderDecoder
from rdm.vocab import Vocab
from tests.builders import RECIPES, sampler, tiny_system
from tests.decoding.helpers import (
    ALL_ROUTERS,
    BARRED,
    CASES,
    FEWER_ITERATIONS,
    MASK,
    NOISES,
    PAD,
    VOCAB,
    Recorder,
    make_canvas,
    make_process,
    make_sampler,
    seeded,
)
from tests.synchronisations import HostSynchronisations

TIMES = ("dndm", "dndm_beta", "dndm_k")
"""Routers whose plan depends on drawn times: the plan is read once."""
STEPS = 6


class Network:
    """Logits that depend on the tokens, projected at the active positions: one synchronisation, as in the models."""

    def __init__(self) -> None:
        self.by_token = torch.randn(VOCAB.size, VOCAB.size, generator=seeded())
        self.by_token[:, [PAD, MASK]] = BARRED
        self.calls = 0

    def __call__(self, tokens: Tensor, t: Tensor, active: Tensor) -> Tensor:
        self.calls += 1
        place = torch.arange(tokens.shape[1])[:, None] + t[:, None, None]
        return ((self.by_token[tokens] + place.sin()).masked_fill(self.by_token[PAD] == BARRED, BARRED))[active]


@pytest.mark.parametrize(("name", "noise"), [*CASES, *(("posterior", noise) for noise in NOISES)])
def test_one_synchronisation_in_an_iteration(name: str, noise: str) -> None:
    """One in the network call; another where a router asks whether all rows are finished."""
    process, canvas, network = make_process(noise, STEPS), make_canvas([5, 3, 4]), Network()
    transition = PosteriorStep() if name == "posterior" else ALL_ROUTERS[name]()
    process.noise.sample(canvas.tokens)  # unigram noise looks once whether it has counts
    with HostSynchronisations() as found:
        make_sampler(transition, STEPS).run(process, network, canvas, seeded())
    ends_early = name in FEWER_ITERATIONS and name not in TIMES
    at_start = {"tensor": 1, "index by a mask": 1, "tolist": 1} if name in TIMES else {}
    if name == "dndm_beta":
        at_start |= {"value": 1}  # the seed of NumPy's generator
    expected = network.calls * (2 if ends_early else 1) + sum(at_start.values())
    assert network.calls >= 1
    assert found.total == expected, found.lines


def test_the_counter_sees_what_waits() -> None:
    values = torch.arange(3.0, device="cpu")
    mask = values >= 0
    actions = {
        "index by a mask": lambda: values[mask],
        "index_put by a mask": lambda: values.clone().__setitem__(mask, -values),
        "nonzero": lambda: mask.nonzero(),
        "masked_select": lambda: values.masked_select(mask),
        "value": lambda: int(values.sum()),
        "tolist": lambda: values.tolist(),
        "cpu": lambda: values.cpu(),
        "tensor": lambda: torch.tensor([1.0], device=values.device),
        "repeat_interleave": lambda: values.repeat_interleave(mask.long()),
    }
    for inference in (False, True):
        for kind, action in actions.items():
            with torch.inference_mode(inference), HostSynchronisations() as found:
                action()
            assert dict(found.kinds) == {kind: 1}
    with HostSynchronisations() as found:
        values.clone()[mask] = 0.0
        values.masked_scatter(mask, values)
        values.repeat_interleave(mask.long(), output_size=3)
        float(make_process("absorbing").schedule.alpha(torch.tensor(2)))
    assert not found.kinds


def test_active_index_lists_the_active_positions_in_order() -> None:
    process, canvas, recorder = make_process("absorbing", STEPS), make_canvas([5, 3, 4]), Recorder()
    make_sampler(ALL_ROUTERS["commit"](), STEPS).run(process, Network(), canvas, seeded(), recorder)
    sizes = []
    for state, _ in recorder:
        assert torch.equal(state.active_index, state.active.flatten().nonzero().squeeze(1))
        sizes.append(len(state.active_index))
    assert sizes[0] > sizes[1] > 0


@pytest.mark.parametrize("name", RECIPES)
def test_one_synchronisation_in_an_iteration_of_a_system(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncoderDecoder, "_padded", lambda network, mask: True)  # as on a GPU
    vocab = Vocab(size=12)
    system, source = tiny_system(vocab, name).eval(), torch.tensor([[2, 7, 8, 9, 3], [2, 6, 3, 0, 0]])
    counts = []
    for steps in (4, 9):
        with HostSynchronisations() as found:
            system.generate(source, sampler(name, steps), seeded())
        counts.append(found.total)
    assert counts[1] - counts[0] == 9 - 4, found.lines
