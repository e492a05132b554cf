"""CMLM + SMART and CMLMC: losses by hand, no gradient through the first pass, causal sublayer, decoding."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rdm.decoding.repredict import RepredictAll
from rdm.decoding.sampler import Canvas, Sampler
from rdm.decoding.schedule import Linear as LinearDecoding
from rdm.diffusion.copies import UniformMasks
from rdm.diffusion.correction import MaskAndCorrect, Smart
from rdm.diffusion.noise import Absorbing
from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.schedule import Linear
from rdm.errors import UserError
from rdm.vocab import Vocab
from tests.builders import FixedCopies, batch_from, correcting_denoiser, tiny_system
from tests.decoding.helpers import seeded

VOCAB = Vocab(size=8)
BOS, EOS, MASK, PAD = VOCAB.bos, VOCAB.eos, VOCAB.mask, VOCAB.pad
PROCESS = DiffusionProcess(Linear(4), Absorbing(VOCAB, noise_specials=False))
X0 = torch.tensor([[BOS, 5, 6, 7, EOS], [BOS, 7, 5, EOS, PAD]])
X_T = torch.tensor([[BOS, 5, MASK, 7, EOS], [BOS, 7, MASK, EOS, PAD]])


class CountingDenoiser:
    """Logits that depend on every token of the row: ``log(1 + ((sum of the row + n + k) mod 5))`` for id k at n."""

    def __init__(self) -> None:
        self.scale = torch.ones((), requires_grad=True)
        self.inputs: list[Tensor] = []
        self.gradients: list[bool] = []

    def row(self, tokens: list[int]) -> list[list[float]]:
        barred = [-30.0] * 5  # special symbols are never predicted
        ordinary = range(5, VOCAB.size)
        return [barred + [math.log(1 + (sum(tokens) + n + k) % 5) for k in ordinary] for n in range(len(tokens))]

    def __call__(self, x_t: Tensor, t: Tensor, positions: Tensor | tuple[Tensor, ...]) -> Tensor:
        logits = torch.tensor([self.row(row) for row in x_t.tolist()]) * self.scale
        self.inputs.append(x_t)
        self.gradients.append(logits.requires_grad)
        return logits[positions]


def cross_entropy(denoiser: CountingDenoiser, read: list[list[int]], at: Tensor) -> float:
    """``sum of -log softmax`` of the clean token at the positions, without tensors."""
    total = 0.0
    for row, column in at.nonzero().tolist():
        logits = denoiser.row(read[row])[column]
        total += math.log(sum(map(math.exp, logits))) - logits[int(X0[row, column])]
    return total


def guess(denoiser: CountingDenoiser, read: Tensor, at: Tensor) -> Tensor:
    filled = read.clone()
    for row, column in at.nonzero().tolist():
        logits = denoiser.row(read[row].tolist())[column]
        filled[row, column] = logits.index(max(logits))
    return filled


class MaskFirst(UniformMasks):
    """Masks the first learnable token of every row."""

    def draw(self, process, x0, generator):  # type: ignore[no-untyped-def]
        learnable = process.learnable(x0)
        first = learnable & (learnable.long().cumsum(1) == 1)
        return [(torch.where(first, MASK, x0), torch.ones(len(x0), dtype=torch.long))]


NOISED = NoisedBatch(X0, X_T, torch.tensor([2, 2]), PROCESS.learnable(X0))


def test_smart_by_hand() -> None:
    """The second pass reads the masked argmax of the first and learns every position."""
    denoiser = CountingDenoiser()
    (term,) = Smart(MaskFirst(), label_smoothing=0.0).terms(denoiser, NOISED, PROCESS)
    own = guess(denoiser, X_T, NOISED.learnable)
    own[:, 1] = MASK
    assert torch.equal(denoiser.inputs[1], own)
    assert not torch.equal(own, torch.where(X0[:, 1:2] == X0, MASK, X0))  # the argmax is wrong somewhere
    assert term.total.item() == pytest.approx(cross_entropy(denoiser, own.tolist(), NOISED.learnable), rel=1e-5)
    assert (term.name, term.unit, denoiser.gradients) == ("diffusion", "ordinary", [False, True])


class ReplaceFirst(MaskAndCorrect):
    """Replaces the first revealed token of every row."""

    def choose_replaced(self, noised: NoisedBatch, generator: torch.Generator | None) -> Tensor:
        revealed = noised.learnable & ~noised.noisy
        return revealed & (revealed.long().cumsum(1) == 1)


def test_cmlmc_by_hand() -> None:
    """Masks of the gold text in one pass; in another, own predictions from a fully masked pass among the revealed."""
    denoiser = CountingDenoiser()
    masked, correction = ReplaceFirst(0.25, label_smoothing=0.0).terms(denoiser, NOISED, PROCESS)
    all_masked = torch.where(NOISED.learnable, MASK, X0)
    mixed = X_T.clone()
    mixed[:, 1] = guess(denoiser, all_masked, NOISED.learnable)[:, 1]
    assert [torch.equal(*pair) for pair in zip(denoiser.inputs, (X_T, all_masked, mixed), strict=True)] == [True] * 3
    assert denoiser.gradients == [True, False, True]
    replaced = torch.zeros_like(NOISED.learnable)
    replaced[:, 1] = True
    assert masked.total.item() == pytest.approx(cross_entropy(denoiser, X_T.tolist(), NOISED.noisy), rel=1e-5)
    assert correction.total.item() == pytest.approx(cross_entropy(denoiser, mixed.tolist(), replaced), rel=1e-5)
    assert (masked.factor, correction.factor, correction.unit) == (1.0, 4.0, "ordinary")


@pytest.mark.parametrize("share", [0.3, 0.5, 1.0])
def test_cmlmc_replaces_a_share_of_the_revealed_tokens(share: float) -> None:
    x0 = torch.randint(5, 8, (50, 12), generator=seeded(1))
    noised = UniformMasks()(PROCESS, x0, seeded(2))
    chosen = MaskAndCorrect(share).choose_replaced(noised, seeded(3))
    revealed = ~noised.noisy
    assert not (chosen & ~revealed).any()
    assert torch.equal(chosen.sum(1), (share * revealed.sum(1)).long())
    assert len(set(map(tuple, chosen.tolist()))) > 10 or share == 1.0


@pytest.mark.parametrize("name", ["cmlm_smart", "cmlmc"])
def test_the_first_pass_has_no_gradient(name: str) -> None:
    """The gradient is that of the passes with a loss, with the first argmax as a constant."""
    vocab = Vocab(size=20)
    torch.manual_seed(0)
    objective: Smart | MaskAndCorrect = Smart(FixedMasks()) if name == "cmlm_smart" else MaskAndCorrect(1.0)
    system = tiny_system(vocab, name, copies=FixedCopies(), objective=objective).eval()
    batch = batch_from(vocab, [([5, 6], [7, 8, 9, 10]), ([11], [12, 13])])
    calls: list[bool] = []
    system.denoiser.register_forward_hook(lambda _, __, logits: calls.append(logits.requires_grad))
    sum(term.factor * term.total for term in system.loss(batch, seeded())).backward()  # type: ignore[union-attr]
    assert calls == ([False, True] if name == "cmlm_smart" else [True, False, True])
    assert all(parameter.grad is not None for parameter in system.parameters())


class FixedMasks(UniformMasks):
    """Every second position."""

    def draw(self, process, x0, generator):  # type: ignore[no-untyped-def]
        noised = process.learnable(x0) & (torch.arange(x0.shape[1]) % 2 == 0)
        return [(torch.where(noised, process.noise.sample(x0), x0), torch.ones(len(x0), dtype=torch.long))]


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_share_of_replaced_tokens_is_checked(share: float) -> None:
    with pytest.raises(UserError, match=r"diffusion.objective.replaced must lie in \(0, 1\]"):
        MaskAndCorrect(share)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_causal_sublayer(pre_norm: bool) -> None:
    """It sees earlier positions only, and padding changes nothing."""
    torch.manual_seed(0)
    denoiser = correcting_denoiser(VOCAB, pre_norm=pre_norm).eval()
    sublayer = denoiser.network.decoder[0].after_self
    x, later = torch.randn(1, 5, 32), torch.randn(1, 5, 32)
    later[:, :3] = x[:, :3]
    torch.testing.assert_close(sublayer(x)[:, :3], sublayer(later)[:, :3])
    assert not torch.allclose(sublayer(x)[:, 4], sublayer(torch.cat([-x[:, :1], x[:, 1:]], 1))[:, 4], atol=1e-4)
    memory, t = denoiser.encode(torch.tensor([[BOS, 5, EOS]])), torch.tensor([1])
    short, long = torch.tensor([[BOS, 5, MASK, EOS]]), torch.tensor([[BOS, 5, MASK, EOS, PAD, PAD]])
    torch.testing.assert_close(denoiser(short, t, memory), denoiser(long, t, memory)[:, :4], rtol=1e-4, atol=1e-4)


def test_every_token_is_predicted_again() -> None:
    """A token and its score are replaced although it was denoised; Mask-Predict would keep both."""
    answers = iter([(5, 3.0), (6, 1.0)])

    def denoise(tokens: Tensor, t: Tensor, active: Tensor) -> Tensor:
        assert int(active.sum()) == 2
        token, size = next(answers)
        logits = torch.zeros(2, VOCAB.size)
        logits[:, token] = torch.tensor([size + 1, size])
        return logits

    canvas = Canvas(torch.tensor([[BOS, MASK, MASK, EOS]]), torch.tensor([[True, False, False, True]]))
    seen: list[list[int]] = []
    sampler = Sampler("repredict", 2, RepredictAll(), LinearDecoding())
    decoded = sampler.run(PROCESS, denoise, canvas, observer=lambda _, outcome: seen.append(outcome.tokens[0].tolist()))
    assert seen == [[BOS, 5, MASK, EOS], [BOS, 6, 6, EOS]]
    last = [math.log(math.exp(size) / (math.exp(size) + 7)) for size in (2.0, 1.0)]
    assert decoded.scores.item() == pytest.approx(sum(last) / 2, rel=1e-5)


@pytest.mark.parametrize("build", [lambda: Smart(UniformMasks()), lambda: MaskAndCorrect()])
def test_likelihood_is_the_bound_of_absorbing_diffusion(build: Callable[[], Smart | MaskAndCorrect]) -> None:
    objective = build()
    assert objective.is_bound(PROCESS)
    assert objective.unweighted().describe()["reweighting"] == {"class": "Original"}
    single = replace(NOISED, learnable=NOISED.learnable)
    assert torch.equal(objective.positions(single), NOISED.noisy)
