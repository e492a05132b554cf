"""Objectives with several passes and their own denominators, trained through a system."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rdm.cross_entropy import smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.diffusion.noised import Denoise, NoisedBatch
from rdm.diffusion.objective import ReweightedCrossEntropy
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Constant
from rdm.systems.denoising import DenoisingSystem
from rdm.terms import Term
from rdm.vocab import Vocab
from tests.builders import FixedCopies, batch_from, overfit, sampler, tiny_system
from tests.language_models import tiny_lm, window_batch

VOCAB = Vocab(size=40)
BATCH = batch_from(VOCAB, [([5 + i, 9 + i, 13 + i], [30 - i, 25 - i, 20 - i, 10 + i][: 2 + i % 3]) for i in range(8)])
WINDOWS = window_batch(torch.randint(5, 40, (4, 16), generator=torch.Generator().manual_seed(0)), prefix=4)


class SecondPass(ReweightedCrossEntropy):
    """Runs a second pass on the argmax of the first, with a loss at all learnable positions."""

    def __init__(self) -> None:
        super().__init__(Constant(), label_smoothing=0.0)
        self.inputs: list[Tensor] = []

    def terms(
        self,
        denoise: Denoise,
        noised: NoisedBatch,
        process: DiffusionProcess,
        generator: torch.Generator | None = None,
    ) -> list[Term]:
        first, second = noised.noisy.nonzero(as_tuple=True), noised.learnable.nonzero(as_tuple=True)
        with torch.no_grad():
            prediction = denoise(noised.x_t, noised.t, first).argmax(-1)
        own = replace(noised, x_t=noised.x_t.index_put(first, prediction))
        self.inputs += [noised.x_t, own.x_t]
        logits = denoise(own.x_t, own.t, second)
        losses = smoothed_cross_entropy(logits, own.at(second).x0, process.noise.learnable, 0.0)
        (denoising,) = super().terms(denoise, noised, process, generator)
        return [denoising, Term("correction", losses.sum() / noised.copies, "even", factor=0.5)]

    def counts(self, target: Tensor, vocab: Vocab) -> dict[str, Tensor]:
        return {"even": ((target % 2 == 0) & (target != vocab.pad)).sum()}


def seq2seq(objective: SecondPass) -> tuple[DenoisingSystem, Batch]:
    return tiny_system(VOCAB, objective=objective), BATCH


def open_ended(objective: SecondPass) -> tuple[DenoisingSystem, Batch]:
    return tiny_lm(VOCAB, objective=objective), WINDOWS


@pytest.mark.parametrize("build", [seq2seq, open_ended])
def test_two_passes_return_two_terms(build: Callable[[SecondPass], tuple[DenoisingSystem, Batch]]) -> None:
    """The second pass reads the argmax of the first; only it and the default pass have a gradient."""
    torch.manual_seed(0)
    objective = SecondPass()
    system, batch = build(objective)
    calls: list[tuple[Tensor, bool]] = []
    system.denoiser.register_forward_hook(lambda _, inputs, logits: calls.append((inputs[0], logits.requires_grad)))
    terms = {term.name: term for term in system.loss(batch, torch.Generator().manual_seed(1))}
    assert [gradient for _, gradient in calls] == [False, True, True]
    for (seen, _), expected in zip(calls, objective.inputs, strict=False):
        assert torch.equal(seen, expected)
    assert not torch.equal(*objective.inputs)
    assert list(terms)[:2] == ["diffusion", "correction"]
    terms["correction"].total.backward()
    assert system.denoiser.network.tokens.weight.grad.abs().sum() > 0


def test_the_objective_declares_its_own_denominator() -> None:
    system, batch = seq2seq(SecondPass())
    counts = system.counts(batch)
    assert set(counts) == {"sentences", "tokens", "ordinary", "even"}
    assert {term.unit for term in system.loss(batch)} <= set(counts)
    assert int(counts["even"]) == sum(
        token % 2 == 0 and token != VOCAB.pad for token in batch.target.flatten().tolist()
    )
    windows = tiny_lm(VOCAB, objective=SecondPass())
    learned = WINDOWS.target[:, 4:]
    assert int(windows.counts(WINDOWS)["even"]) == int((learned % 2 == 0).sum())


def test_trains_with_two_passes() -> None:
    torch.manual_seed(0)
    system, batch = seq2seq(SecondPass())
    overfit(system, batch, steps=150, lr=5e-3)
    generated = system.generate(batch.source, sampler(candidates=1), torch.Generator().manual_seed(0)).tokens
    assert torch.equal(generated[:, : batch.target.shape[1]], batch.target)


def test_default_terms_are_one_pass_at_the_positions_of_the_objective() -> None:
    """The sum of the losses there, divided by the number of copies."""
    torch.manual_seed(0)
    system = tiny_system(VOCAB)  # a conditioned pair of copies
    noised = system.copies(system.process, BATCH.target, torch.Generator().manual_seed(1))
    memory = system.denoiser.encode(BATCH.source)
    positions = noised.noisy.nonzero(as_tuple=True)
    logits = system.denoiser(noised.x_t, noised.t, memory, positions)
    expected = system.objective.losses(logits, noised.at(positions), system.process).sum() / 2
    calls: list[Tensor] = []
    system.denoiser.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0]))
    term, _ = system.loss(BATCH, torch.Generator().manual_seed(1))
    assert (term.name, term.unit, noised.copies, len(calls)) == ("diffusion", "tokens", 2, 1)
    assert torch.equal(term.total, expected)


def test_terms_receive_the_generator_of_the_step() -> None:
    """After the noise has been drawn, so that further draws do not change it."""
    seen: list[torch.Generator | None] = []

    class Recorder(ReweightedCrossEntropy):
        def terms(self, denoise, noised, process, generator=None):  # type: ignore[no-untyped-def]
            seen.append(generator)
            return super().terms(denoise, noised, process, generator)

    generator = torch.Generator().manual_seed(3)
    tiny_system(VOCAB, copies=FixedCopies(), objective=Recorder(Constant())).loss(BATCH, generator)
    assert seen == [generator]
