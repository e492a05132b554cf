"""Small language models and packed text for tests."""

from functools import cache

import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.data.tokenizer import Tokenizer, Words
from rdm.data.toy import ToyTranslation
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Cosine
from rdm.decoding.transition import Transition
from rdm.diffusion.copies import NoisedCopies
from rdm.diffusion.noise import Absorbing
from rdm.diffusion.objective import Objective
from rdm.diffusion.orders import DenoisingOrder, UniformOrder
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.schedule import Linear
from rdm.models.any_order import OpenEndedAnyOrderDenoiser
from rdm.models.denoiser import OpenEndedDenoiser
from rdm.models.layers import TimeEmbedding
from rdm.models.llama import Llama
from rdm.systems.any_order_lm import AnyOrderLanguageModel
from rdm.systems.ar_lm import AutoregressiveLanguageModel
from rdm.systems.diffusion_lm import DiffusionLanguageModel
from rdm.vocab import Vocab
from tests.builders import RECIPES, STEPS


def tiny_llama(vocab: Vocab, dim: int = 32, max_length: int = 16, checkpoint_gradients: bool = False) -> Llama:
    """Two layers, two heads, and initial weights large enough for every input to change the output."""
    torch.manual_seed(0)
    options = {"init_std": dim**-0.5, "checkpoint_gradients": checkpoint_gradients}
    return Llama(vocab, dim, 2 * dim, heads=2, layers=2, max_length=max_length, **options)


def tiny_llama_denoiser(vocab: Vocab, **options: int) -> OpenEndedDenoiser:
    network = tiny_llama(vocab, **options)
    return OpenEndedDenoiser(network, TimeEmbedding(network.dim))


def tiny_lm(
    vocab: Vocab,
    name: str = "rdm_absorbing",
    copies: NoisedCopies | None = None,
    objective: Objective | None = None,
    max_tokens: int = 128,
    **options: int,
) -> DiffusionLanguageModel:
    noise, schedule, default_copies, default_objective, _ = RECIPES[name]
    denoiser = tiny_llama_denoiser(vocab, **options)
    return DiffusionLanguageModel(
        vocab=vocab,
        process=DiffusionProcess(schedule, noise(vocab)),
        copies=copies or default_copies,
        objective=objective or default_objective,
        denoiser=denoiser,
        max_tokens=max_tokens,
    )


def tiny_any_order_lm(vocab: Vocab, order: DenoisingOrder | None = None, **options: int) -> AnyOrderLanguageModel:
    process = DiffusionProcess(Linear(STEPS), Absorbing(vocab))
    denoiser = OpenEndedAnyOrderDenoiser(tiny_llama(vocab, **options))
    return AnyOrderLanguageModel(vocab, process, denoiser, order or UniformOrder())


def tiny_ar_lm(vocab: Vocab, label_smoothing: float = 0.0, **options: int) -> AutoregressiveLanguageModel:
    return AutoregressiveLanguageModel(vocab, tiny_llama(vocab, **options), label_smoothing)


def one_canvas(transition: Transition, steps: int = 8, temperature: float = 0.0, top_p: float = 1.0) -> Sampler:
    """A sampler without length prediction."""
    return Sampler("test", steps, transition, Cosine(), temperature, top_p=top_p, length_candidates=1)


def window_batch(windows: Tensor, prefix: int = 0) -> Batch:
    """A batch of packed text whose first ``prefix`` tokens are the source."""
    return Batch(windows[:, :prefix], windows, torch.arange(len(windows)))


@cache
def toy_sentences() -> tuple[Tokenizer, list[list[int]]]:
    _, targets = ToyTranslation(train_size=64, valid_size=1, test_size=1).read("train")
    tokenizer = Words()(targets)
    return tokenizer, tokenizer.encode(targets)


def packed(count: int, length: int, ends: bool = True) -> tuple[Vocab, Tensor]:
    """``count`` windows of ``length`` tokens, with ``<eos>`` between sentences if ``ends``."""
    tokenizer, sentences = toy_sentences()
    end = [tokenizer.vocab.eos] if ends else []
    stream = torch.tensor([token for sentence in sentences for token in [*sentence, *end]])
    return tokenizer.vocab, stream[: count * length].view(count, length)
