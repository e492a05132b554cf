"""DiffuSeq: loss by hand, clean source, canvas, candidates, overfitting."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.decoding.candidates import CandidateSet, Selection
from rdm.decoding.gaussian import GaussianSampler
from rdm.diffusion.gaussian import normal
from rdm.diffusion.step_importance import UniformSteps
from rdm.errors import UserError
from rdm.models.diffuseq import EncodedSource, SelfConditionedDiffuSeq
from rdm.systems.diffuseq import DiffuSeqSystem
from rdm.training.module import combine
from rdm.vocab import Vocab
from tests.builders import batch_from, overfit, sampler, tiny_diffuseq, tiny_system
from tests.decoding.helpers import seeded

VOCAB = Vocab(size=20)
PAD, BOS, EOS = VOCAB.pad, VOCAB.bos, VOCAB.eos


@pytest.fixture
def system() -> DiffuSeqSystem:
    torch.manual_seed(0)
    return tiny_diffuseq(VOCAB, steps=3, max_length=4).eval()


def batch_of(pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
    return batch_from(VOCAB, pairs)


BATCH = batch_of([([5, 6], [7, 8, 9]), ([10, 11, 12], [13]), ([5], [6, 7]), ([14], [15, 5]), ([6], [7]), ([8], [9])])


def padded(tokens: Tensor, more: int) -> Tensor:
    return torch.cat([tokens, torch.full((len(tokens), more), PAD)], 1)


def test_canvas() -> None:
    canvas = tiny_diffuseq(VOCAB, max_length=4).canvas(BATCH.target)
    assert canvas[:2].tolist() == [[BOS, 7, 8, 9, EOS, PAD], [BOS, 13, EOS, PAD, PAD, PAD]]


SEED = 5


def test_loss_by_hand(system: DiffuSeqSystem) -> None:
    """With the noise drawn again in the same order; padding counts like any word."""
    terms = {term.name: float(term.total.detach()) for term in system.loss(BATCH, seeded(SEED))}
    generator, alpha = seeded(SEED), system.process.alpha.tolist()
    words, weight = system.canvas(BATCH.target), system.denoiser.tokens.weight.detach()
    embeddings = weight[words]
    z0 = embeddings + math.sqrt(1 - alpha[1]) * normal(embeddings, generator)
    t = 1 + (3 * torch.rand(6, generator=generator)).long()
    assert {1, 2, 3} == set(t.tolist())  # else another SEED
    noise = normal(embeddings, generator)
    kept = system.process.alpha[t].float()[:, None, None]
    z_t = kept.sqrt() * z0 + (1 - kept).sqrt() * noise
    guess = system.denoiser(z_t, t, system.denoiser.encode(BATCH.source)).detach()
    mse = rounding = tail = 0.0
    for row in range(6):
        for place in range(6):
            goal = embeddings[row, place] if t[row] == 1 else z0[row, place]
            mse += sum((a - b) ** 2 for a, b in zip(guess[row, place].tolist(), goal.tolist(), strict=True)) / 16 / 6
            tail += alpha[3] * sum(value**2 for value in z0[row, place].tolist()) / 16 / 6
        sentence = [(weight[word], int(word)) for word in BATCH.source[row] if word != PAD]
        sentence += zip(z0[row], words[row].tolist(), strict=True)
        for point, word in sentence:
            products = [float(point @ other) for other in weight]
            rounding += (math.log(sum(map(math.exp, products))) - products[word]) / len(sentence)
    assert terms == pytest.approx({"mse": mse, "rounding": rounding, "tail": tail}, rel=1e-4)
    assert min(mse, rounding, tail) > 0


def test_loss_reaches_all_parameters(system: DiffuSeqSystem) -> None:
    terms = system.loss(BATCH, seeded())
    combine(terms, {term.name: term.total / BATCH.counts[term.unit] for term in terms}).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in system.parameters())


@pytest.mark.parametrize("side", ["source", "target"])
def test_padding_does_not_change_loss_or_output(system: DiffuSeqSystem, side: str) -> None:
    """A wider batch has the same loss, and the same text comes out."""
    wide = Batch(BATCH.source, BATCH.target[:, :5], BATCH.ids, BATCH.counts)
    setattr(wide, side, padded(getattr(wide, side), 1))
    for term, other in zip(system.loss(BATCH, seeded()), system.loss(wide, seeded()), strict=True):
        torch.testing.assert_close(term.total, other.total)
    decoding = GaussianSampler("x", 3)
    outputs = [system.generate(batch.source, decoding, seeded()) for batch in (BATCH, wide)]
    assert torch.equal(outputs[0].tokens, outputs[1].tokens)
    torch.testing.assert_close(outputs[0].scores, outputs[1].scores, rtol=1e-4, atol=1e-4)


def test_source_is_never_noised(system: DiffuSeqSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """In training and decoding the network receives noised target points and the clean encoded source."""
    seen: list[tuple[Tensor, EncodedSource]] = []
    forward = system.denoiser.forward

    def recorded(z: Tensor, t: Tensor, source: EncodedSource, guess: Tensor | None = None) -> Tensor:
        seen.append((z, source))
        return forward(z, t, source, guess)

    monkeypatch.setattr(system.denoiser, "forward", recorded)
    before = BATCH.source.clone()
    system.loss(BATCH, seeded(1))
    system.generate(BATCH.source, GaussianSampler("x", 3), seeded(2))
    assert len(seen) == 4
    clean = system.denoiser.encode(before)
    for z, source in seen:
        assert z.shape == (6, 6, 16)
        assert torch.equal(source.states, clean.states)
        assert torch.equal(source.mask, clean.mask)
    assert torch.equal(BATCH.source, before)


class Fixed(GaussianSampler):
    """Decodes to fixed words, with their embeddings as the last prediction."""

    def __init__(self, words: Tensor) -> None:
        super().__init__("fixed", steps=1)
        self.words = words

    def run(self, process, denoise, embeddings, noise, generator=None, observer=None):  # type: ignore[no-untyped-def]
        return self.words, embeddings[self.words]


def test_text_ends_at_the_first_eos(system: DiffuSeqSystem) -> None:
    """What follows is not text and has no score; without one, the whole canvas is text."""
    words = torch.tensor([[BOS, 7, EOS, 8, EOS, PAD], [BOS, 7, 8, 9, 10, 11], [EOS, 5, 6, 7, 8, 9]])
    output = system.generate(BATCH.source[:3], Fixed(words), seeded())
    assert output.tokens.tolist() == [[BOS, 7, EOS, PAD, PAD, PAD], [BOS, 7, 8, 9, 10, 11], [EOS] + [PAD] * 5]
    weight = system.denoiser.tokens.weight.detach()
    log_probs = (weight @ weight.T).log_softmax(1).diag()
    means = [log_probs[row].mean() for row in ([BOS, 7, EOS], [BOS, 7, 8, 9, 10, 11], [EOS])]
    torch.testing.assert_close(output.scores, torch.stack(means))


def test_candidates(system: DiffuSeqSystem) -> None:
    """Candidates have different noise; the best score is returned, or the choice of the selection."""
    source = BATCH.source[:2]
    seen: list[tuple[Tensor, Tensor]] = []

    class Third(Selection):
        def scores(self, candidates: CandidateSet) -> Tensor:
            seen.append((candidates.tokens, candidates.scores))
            return torch.tensor([[0.0, 0.0, 1.0, 0.0]] * 2)

    chosen = system.generate(source, GaussianSampler("x", 3, samples=4, selection=Third()), seeded())
    ((tokens, scores),) = seen
    assert (tokens.shape, scores.shape) == ((2, 4, 6), (2, 4))
    assert len({tuple(row) for row in tokens[0].tolist()}) > 1
    assert chosen.rows.tolist() == [2, 6]
    assert torch.equal(chosen.tokens, tokens[:, 2])
    assert torch.equal(chosen.scores, scores[:, 2])
    assert chosen.candidates is not None
    assert torch.equal(chosen.candidates.tokens, tokens)
    assert torch.equal(chosen.candidates.scores, scores)
    assert chosen.candidates.chosen.tolist() == [2, 2]
    best = system.generate(source, GaussianSampler("x", 3, samples=4), seeded())
    assert torch.equal(best.scores, scores.max(1).values)
    assert (scores < 0).all()


def test_other_decodings_raise(system: DiffuSeqSystem) -> None:
    system.check(GaussianSampler("x", 3))
    with pytest.raises(UserError, match=r"decoding.steps=4 is more than the .*num_steps=3"):
        system.check(GaussianSampler("x", 4))
    with pytest.raises(UserError, match="needs decoding=diffuseq"):
        system.check(sampler())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="decoding=x is not for diffusion over tokens"):
        tiny_system(VOCAB).check(GaussianSampler("x", 3))  # type: ignore[arg-type]


def test_overfits_32_pairs() -> None:
    """A few steps of DDIM or of the posterior reproduce every sentence."""
    generator = seeded(1)
    lengths = torch.randint(2, 6, (64,), generator=generator).tolist()
    sides = [torch.randint(5, VOCAB.size, (length,), generator=generator).tolist() for length in lengths]
    batch = batch_of(list(zip(sides[:32], sides[32:], strict=True)))
    torch.manual_seed(1)
    system = tiny_diffuseq(VOCAB, dim=64, layers=2, max_length=6)
    overfit(system, batch, steps=600, lr=4e-3)
    expected = system.canvas(batch.target)
    for eta, clamp in [(0.0, True), (0.0, False), (1.0, True)]:
        tokens = system.generate(batch.source, GaussianSampler("x", 10, eta, clamp), seeded()).tokens
        right = (tokens == expected).all(1).float().mean()
        assert right >= 0.9, (eta, clamp, float(right))


def test_anchor_is_the_cross_entropy_of_the_prediction(system: DiffuSeqSystem) -> None:
    """It adds a term and changes no other; without a weight there is none."""
    plain = {term.name: float(term.total.detach()) for term in system.loss(BATCH, seeded(SEED))}
    assert "anchor" not in plain
    predictions: list[Tensor] = []
    system.denoiser.register_forward_hook(lambda _, __, output: predictions.append(output.detach()))
    system.anchor = 0.5
    terms = {term.name: term for term in system.loss(BATCH, seeded(SEED))}
    assert {name: float(term.total.detach()) for name, term in terms.items() if name != "anchor"} == plain
    log_probs = (predictions[0] @ system.denoiser.tokens.weight.detach().T).log_softmax(-1)
    words = system.canvas(BATCH.target)
    total = sum(-float(log_probs[b, n, words[b, n]]) / 6 for b in range(6) for n in range(6))
    assert float(terms["anchor"].total.detach()) == pytest.approx(total, rel=1e-4)
    assert (terms["anchor"].unit, terms["anchor"].factor) == ("sentences", 0.5)
    with pytest.raises(UserError, match=r"system.anchor must be 0 or above"):
        DiffuSeqSystem(VOCAB, system.process, system.denoiser, anchor=-1.0)


def test_weights_of_the_steps_multiply_the_losses_that_depend_on_them(system: DiffuSeqSystem) -> None:
    """With weight 2 at all steps: error and anchor loss double, rounding and tail stay; there is a term to fit."""

    class Doubled(UniformSteps):
        def draw(self, u: Tensor, num_steps: int) -> tuple[Tensor, Tensor]:
            t, weights = super().draw(u, num_steps)
            return t, 2 * weights

        def misfit(self, t: Tensor, losses: Tensor, num_steps: int) -> Tensor:
            return losses

    system.anchor = 1.0
    plain = {term.name: float(term.total.detach()) for term in system.loss(BATCH, seeded(SEED))}
    system.steps = Doubled()
    terms = {term.name: float(term.total.detach()) for term in system.loss(BATCH, seeded(SEED))}
    factors = {"mse": 2, "anchor": 2, "rounding": 1, "tail": 1}
    expected = {name: plain[name] * factor for name, factor in factors.items()} | {"steps": plain["mse"]}
    assert terms == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_self_conditioning(share: float) -> None:
    """A first pass without gradient, whose prediction the second reads; in decoding the one of the iteration before."""
    torch.manual_seed(0)
    sizes = {"embedding": 16, "dim": 32, "hidden": 64, "heads": 2, "layers": 1, "max_length": 4}
    denoiser = SelfConditionedDiffuSeq(share, vocab=VOCAB, dropout=0.0, attention_dropout=0.0, **sizes)
    system = DiffuSeqSystem(VOCAB, tiny_diffuseq(VOCAB, steps=3).process, denoiser)
    calls: list[tuple[Tensor | None, Tensor]] = []

    def record(_: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((inputs[3] if len(inputs) > 3 else None, output))

    denoiser.register_forward_hook(record)
    system.loss(BATCH, seeded(SEED))
    assert [output.requires_grad for _, output in calls] == ([False, True] if share else [True])
    assert calls[0][0] is None
    if share:
        assert calls[1][0] is calls[0][1]
        assert not torch.allclose(calls[0][1], calls[1][1])
    calls.clear()
    system.generate(BATCH.source, GaussianSampler("x", 2), seeded())
    assert calls[0][0] is None
    assert calls[1][0] is calls[0][1]
    with pytest.raises(UserError, match=r"model.self_conditioning must lie in \[0, 1\]"):
        SelfConditionedDiffuSeq(1.5, vocab=VOCAB, **sizes)
