"""Compiled layers."""

import pytest
import torch

from rdm.data.batch import Batch
from rdm.systems.base import System
from rdm.training.setup import compile_layers
from tests.builders import FixedCopies, batch_of, tiny_system, toy_data


def gradients(system: System, batch: Batch) -> dict[str, torch.Tensor]:
    system.zero_grad()
    torch.stack([term.total for term in system.loss(batch)]).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in system.named_parameters()}


@pytest.mark.slow
def test_compiled_layers_give_the_same_gradients() -> None:
    """For batches of two shapes, with unchanged parameter names."""
    data = toy_data(train=24)
    system = tiny_system(data.vocab, copies=FixedCopies())
    batches = [batch_of(data, list(range(8))), batch_of(data, list(range(8, 20)))]
    assert batches[0].target.shape != batches[1].target.shape
    names, expected = list(system.state_dict()), [gradients(system, batch) for batch in batches]
    compile_layers(system)
    assert list(system.state_dict()) == names
    for batch, right in zip(batches, expected, strict=True):
        for name, gradient in gradients(system, batch).items():
            torch.testing.assert_close(gradient, right[name], rtol=1e-4, atol=1e-5, msg=name)
