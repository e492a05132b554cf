"""The gradient of an optimiser step does not depend on padding, accumulation or the number of devices."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.training.module import combine
from tests.builders import RECIPES, FixedCopies, batch_of, tiny_system, toy_data
from tests.training.one_step import one_step


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert any(gradient.abs().max() > 1e-3 for gradient in first.values())
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Gradients of one step over one batch in one process."""
    file = tmp_path_factory.mktemp("gradients") / "reference.pt"
    one_step(file)
    return torch.load(file)


@pytest.mark.parametrize("accumulate", [2, 3])
def test_accumulation_does_not_change_the_gradient(
    reference: dict[str, Tensor], tmp_path: Path, accumulate: int
) -> None:
    one_step(tmp_path / "parts.pt", accumulate=accumulate)
    assert_same(reference, torch.load(tmp_path / "parts.pt"))


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("strategy", [pytest.param("ddp", marks=pytest.mark.slow), "sharded"])
def test_number_of_ranks_does_not_change_the_gradient(
    reference: dict[str, Tensor], tmp_path: Path, strategy: str, accumulate: int
) -> None:
    file = tmp_path / "ranks.pt"
    command = [sys.executable, "-m", "tests.training.one_step", str(file), "2", str(accumulate), strategy]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    assert_same(reference, shared := torch.load(file))
    largest = max(gradient.abs().max() for gradient in reference.values())
    assert max((reference[name] - shared[name]).abs().max() for name in reference) < 1e-6 * largest


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "sharded"])
def test_fused_cross_entropy_on_two_ranks(reference: dict[str, Tensor], tmp_path: Path, strategy: str) -> None:
    """The backward pass multiplies with the output embedding again, after FSDP has freed the gathered weights."""
    file = tmp_path / "fused.pt"
    command = [sys.executable, "-m", "tests.training.one_step", str(file), "2", "2", strategy, "fused"]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    assert_same(reference, torch.load(file))


# The objectives of these two draw positions of their own, and other ones if the batch is wider.
@pytest.mark.parametrize("name", [name for name in RECIPES if name not in ("cmlm_smart", "cmlmc")])
def test_padding_does_not_change_the_gradient(name: str) -> None:
    """Padding of source and target changes neither the loss nor its gradient."""
    data = toy_data(train=12)
    torch.manual_seed(0)
    system = tiny_system(data.vocab, name, copies=FixedCopies())
    batch = batch_of(data, list(range(12)))

    def padded(tokens: Tensor) -> Tensor:
        return torch.nn.functional.pad(tokens, (0, 4), value=data.vocab.pad)

    def gradients(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        system.zero_grad()
        terms = system.loss(batch)
        loss = combine(terms, {term.name: term.total / system.counts(batch)[term.unit] for term in terms})
        loss.backward()
        return loss.detach(), {n: p.grad.clone() for n, p in system.named_parameters() if p.grad is not None}

    wider = Batch(padded(batch.source), padded(batch.target), batch.ids, batch.counts)
    (loss, first), (wide_loss, second) = gradients(batch), gradients(wider)
    torch.testing.assert_close(loss, wide_loss, rtol=1e-5, atol=0)
    assert_same(first, second)


def test_loss_is_a_mean_over_tokens_and_sentences() -> None:
    """A batch repeated twice has the same loss."""
    data = toy_data(train=6)
    system = tiny_system(data.vocab, copies=FixedCopies())
    once, twice = batch_of(data, list(range(6))), batch_of(data, list(range(6)) * 2)
    for first, second in zip(system.loss(once), system.loss(twice), strict=True):
        assert first.total > 0
        torch.testing.assert_close(
            first.total / system.counts(once)[first.unit], second.total / system.counts(twice)[second.unit]
        )
