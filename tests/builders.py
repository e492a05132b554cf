"""Small systems and data for tests."""

import atexit
from collections.abc import Callable, Sequence
from functools import partial
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.data.examples import Pairs
from rdm.data.loading import Loading
from rdm.data.pairs import PairsDataModule
from rdm.data.ragged import Ragged
from rdm.data.tokenizer import Words
from rdm.data.toy import ToyTranslation
from rdm.decoding.repredict import RepredictAll
from rdm.decoding.routing import Ancestral, MaskPredict, PosteriorStep, Unconditional
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Cosine as CosineDecoding
from rdm.decoding.transition import Transition
from rdm.diffusion.copies import Conditioned, NoisedCopies, Single, UniformMasks
from rdm.diffusion.correction import MaskAndCorrect, Smart
from rdm.diffusion.gaussian import GaussianProcess
from rdm.diffusion.noise import Absorbing, Mixture, Noise, Uniform
from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.objective import Objective, ReweightedCrossEntropy, VariationalBound
from rdm.diffusion.orders import DenoisingOrder, UniformOrder
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Constant, Original
from rdm.diffusion.reweighting import Linear as LinearWeight
from rdm.diffusion.schedule import Cosine, Linear, Schedule, Sqrt
from rdm.diffusion.warping import TimeWarp
from rdm.models.any_order import AnyOrderDenoiser
from rdm.models.causal import CausalDecoder
from rdm.models.cdcd import CDCDDenoiser
from rdm.models.correction import CorrectingDenoiser
from rdm.models.denoiser import Seq2SeqDenoiser
from rdm.models.diffuseq import DiffuSeqDenoiser
from rdm.models.disco import DisCoDenoiser
from rdm.models.encoder_decoder import EncoderDecoder
from rdm.models.layers import TimeEmbedding, Timeless
from rdm.models.levenshtein import LevenshteinEditor
from rdm.systems.any_order import AnyOrderSystem
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.systems.base import System
from rdm.systems.cdcd import CDCDSystem
from rdm.systems.diffuseq import DiffuSeqSystem
from rdm.systems.diffusion import DiffusionSystem
from rdm.systems.disco import DisCoSystem
from rdm.systems.levenshtein import LevenshteinSystem
from rdm.training.module import combine
from rdm.training.optim import Cosine as CosineDecay
from rdm.training.optim import Optimization
from rdm.vocab import Vocab

Recipe = tuple[Callable[[Vocab], Noise], Schedule, NoisedCopies, Objective, Transition]
STEPS = 20
CACHE = mkdtemp(prefix="rdm-tests-")
atexit.register(rmtree, CACHE, ignore_errors=True)


def reweighted(smoothing: float = 0.1) -> Objective:
    return ReweightedCrossEntropy(LinearWeight(), smoothing)


RECIPES: dict[str, Recipe] = {
    "absorbing": (Absorbing, Linear(STEPS), Single(), ReweightedCrossEntropy(Original(), 0.1), Ancestral()),
    "multinomial": (Uniform, Cosine(STEPS), Single(), VariationalBound(), PosteriorStep()),
    "rdm_absorbing": (Absorbing, Linear(STEPS), Conditioned(), reweighted(), Unconditional()),
    "rdm_multinomial": (Uniform, Cosine(STEPS), Conditioned(), reweighted(), Unconditional()),
    "rdm_mixture": (Mixture, Cosine(STEPS), Conditioned(), reweighted(), Unconditional()),
    "cmlm": (
        partial(Absorbing, noise_specials=False),
        Linear(STEPS),
        UniformMasks(),
        ReweightedCrossEntropy(Constant(), 0.1),
        MaskPredict(),
    ),
    "cmlm_smart": (
        partial(Absorbing, noise_specials=False),
        Linear(STEPS),
        UniformMasks(),
        Smart(UniformMasks()),
        RepredictAll(),
    ),
    "cmlmc": (
        partial(Absorbing, noise_specials=False),
        Linear(STEPS),
        UniformMasks(),
        MaskAndCorrect(),
        RepredictAll(),
    ),
}
"""Parts of each ``diffusion=`` choice as objects, without Hydra."""


def tiny_network(
    vocab: Vocab, dim: int = 32, pre_norm: bool = True, max_length: int = 31, layers: int = 1
) -> EncoderDecoder:
    return EncoderDecoder(
        vocab, dim, 2 * dim, 2, 1, layers, max_length=max_length, dropout=0.0, pre_norm=pre_norm, init_std=dim**-0.5
    )


def tiny_denoiser(vocab: Vocab, dim: int = 32, pre_norm: bool = True, timeless: bool = False) -> Seq2SeqDenoiser:
    return Seq2SeqDenoiser(tiny_network(vocab, dim, pre_norm), Timeless() if timeless else TimeEmbedding(dim))


def correcting_denoiser(vocab: Vocab, dim: int = 32, pre_norm: bool = True) -> CorrectingDenoiser:
    return CorrectingDenoiser(tiny_network(vocab, dim, pre_norm), Timeless())


def tiny_system(
    vocab: Vocab,
    name: str = "rdm_absorbing",
    dim: int = 32,
    copies: NoisedCopies | None = None,
    objective: Objective | None = None,
) -> DiffusionSystem:
    noise, schedule, default_copies, default_objective, _ = RECIPES[name]
    process = DiffusionProcess(schedule, noise(vocab))
    timeless = name.startswith("cmlm")
    denoiser = correcting_denoiser(vocab, dim) if name == "cmlmc" else tiny_denoiser(vocab, dim, timeless=timeless)
    return DiffusionSystem(
        vocab=vocab,
        process=process,
        copies=copies or default_copies,
        objective=objective or default_objective,
        denoiser=denoiser,
    )


def tiny_autoregressive(vocab: Vocab, dim: int = 32, **options: Any) -> AutoregressiveSystem:
    return AutoregressiveSystem(vocab, CausalDecoder(tiny_network(vocab, dim, **options)))


def tiny_disco(vocab: Vocab, dim: int = 32, **options: Any) -> DisCoSystem:
    return DisCoSystem(vocab, DisCoDenoiser(tiny_network(vocab, dim, **options)))


def tiny_any_order(
    vocab: Vocab, dim: int = 32, order: DenoisingOrder | None = None, unknown_length: float = 0.0, **options: Any
) -> AnyOrderSystem:
    process = DiffusionProcess(Linear(STEPS), Absorbing(vocab, noise_specials=False))
    denoiser = AnyOrderDenoiser(tiny_network(vocab, dim, **options))
    return AnyOrderSystem(vocab, process, denoiser, order or UniformOrder(), unknown_length=unknown_length)


def tiny_levenshtein(vocab: Vocab, dim: int = 32, placeholders: int = 31, **options: Any) -> LevenshteinSystem:
    return LevenshteinSystem(vocab, LevenshteinEditor(tiny_network(vocab, dim, **options), placeholders))


def sampler(name: str = "rdm_absorbing", steps: int = 5, candidates: int = 3) -> Sampler:
    transition = RECIPES[name][-1]
    return Sampler(name, steps, transition, CosineDecoding(), length_candidates=candidates)


def toy_data(train: int = 64, max_length: int = 31, **options: Any) -> PairsDataModule:
    corpus = ToyTranslation(train_size=train, valid_size=8, test_size=8)
    return PairsDataModule(corpus, Words(), Loading(cache=CACHE, **options), max_length)


def batch_from(vocab: Vocab, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Batch:
    """A batch of source and target ids without special symbols."""
    sources, targets = (Ragged.from_rows(side) for side in zip(*pairs, strict=True))
    return counted(Pairs(vocab, sources, targets, np.arange(len(pairs)))[range(len(pairs))], vocab)


def batch_of(data: PairsDataModule, indices: list[int], split: str = "train") -> Batch:
    return counted(data.examples(split)[indices], data.vocab)  # type: ignore[arg-type]


def counted(batch: Batch, vocab: Vocab) -> Batch:
    """The batch with counts of its targets, as a training batch has them."""
    target = batch.target
    real = target != vocab.pad
    batch.counts = {
        "sentences": torch.tensor(len(target)),
        "tokens": real.sum(),
        "next": (real & (target != vocab.bos)).sum(),
        "ordinary": vocab.is_ordinary(target).sum(),
    }
    return batch


class FixedCopies(NoisedCopies):
    """Noise that depends only on the sentence, so that a sentence is noised in the same way in any batch."""

    def __call__(self, process: DiffusionProcess, x0: Tensor, generator: torch.Generator | None = None) -> NoisedBatch:
        learnable = process.learnable(x0)
        t = 1 + x0.sum(1) % process.num_steps
        noised = learnable & ((x0 * 7 + torch.arange(x0.shape[1])) % 3 == 0)
        noise = int(process.noise.probs.argmax())
        return NoisedBatch(x0=x0, x_t=torch.where(noised, noise, x0), t=t, learnable=learnable)

    def draw(self, process, x0, generator):  # type: ignore[no-untyped-def]
        raise AssertionError("not used")


def tiny_diffuseq_denoiser(
    vocab: Vocab, dim: int = 32, layers: int = 1, max_length: int = 31, pre_norm: bool = True
) -> DiffuSeqDenoiser:
    return DiffuSeqDenoiser(
        vocab, 16, dim, 2 * dim, 2, layers, max_length, 0.0, 0.0, pre_norm=pre_norm, init_std=dim**-0.5
    )


def tiny_diffuseq(vocab: Vocab, steps: int = 2000, **options: Any) -> DiffuSeqSystem:
    return DiffuSeqSystem(vocab, GaussianProcess(Sqrt(steps, 1e-4)), tiny_diffuseq_denoiser(vocab, **options))


def tiny_cdcd(vocab: Vocab, dim: int = 32, layers: int = 1, max_length: int = 31, pre_norm: bool = True) -> CDCDSystem:
    denoiser = CDCDDenoiser(
        vocab, 16, dim, 2 * dim, 2, layers, max_length, 0.0, 0.0, pre_norm=pre_norm, init_std=dim**-0.5
    )
    return CDCDSystem(vocab, denoiser, TimeWarp(largest=30.0, bins=20))


def overfit(system: System, batch: Batch, steps: int, lr: float) -> None:
    """Train on one batch and switch the system to evaluation mode."""
    optimizer, schedule = Optimization(CosineDecay(warmup_steps=20), lr=lr, weight_decay=0.0).build(system, steps)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        terms = system.loss(batch, generator)
        counts = system.counts(batch)
        loss = combine(terms, {term.name: term.total / counts[term.unit] for term in terms})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    system.eval()
