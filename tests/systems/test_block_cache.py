"""Cached keys and values outside the current block: where they are exact, and where not."""

import pytest
import torch
from torch import Tensor

from rdm.decoding.routing import Commit, Unconditional
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.errors import UserError
from rdm.models.denoiser import OpenEndedDenoiser, Seq2SeqDenoiser
from rdm.models.encoder_decoder import EncoderDecoder
from rdm.models.layers import Timeless
from rdm.models.llama import Llama
from rdm.systems.base import Hypotheses
from rdm.systems.denoising import DenoisingSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, tiny_system
from tests.decoding.helpers import Recorder, seeded
from tests.language_models import tiny_lm

VOCAB = Vocab(size=30)
SOURCES = batch_from(VOCAB, [([5, 6, 7, 8], [9]), ([9, 8], [7]), ([11], [12])]).source
PROMPT = torch.randint(5, VOCAB.size, (3, 4), generator=seeded())


def seq2seq(layers: int, timeless: bool) -> DenoisingSystem:
    torch.manual_seed(0)
    system = tiny_system(VOCAB)
    network = EncoderDecoder(VOCAB, 32, 64, 2, 1, layers, max_length=31, dropout=0.0, init_std=32**-0.5)
    system.denoiser = Seq2SeqDenoiser(network, Timeless() if timeless else system.denoiser.time)
    system.denoiser.restrict(system.process.noise.learnable)
    return system.eval()


def language_model(layers: int, timeless: bool) -> DenoisingSystem:
    torch.manual_seed(0)
    system = tiny_lm(VOCAB)
    network = Llama(VOCAB, 32, 64, heads=2, layers=layers, max_length=16, init_std=32**-0.5)
    system.denoiser = OpenEndedDenoiser(network, Timeless() if timeless else system.denoiser.time)
    system.denoiser.restrict(system.process.noise.learnable)
    return system.eval()


SYSTEMS = {"seq2seq": (seq2seq, SOURCES, 3), "lm": (language_model, PROMPT, 1)}


def generate(
    name: str, layers: int, timeless: bool, steps: int, cache: bool, router: type = Unconditional
) -> tuple[Hypotheses, list[Tensor]]:
    build, source, candidates = SYSTEMS[name]
    decoding = Sampler("test", steps, router(), Linear(), length_candidates=candidates, block=3, block_cache=cache)
    recorder = Recorder()
    best = build(layers, timeless).generate(source, decoding, seeded(), recorder)
    return best, [state.logits for state, _ in recorder]


@pytest.mark.parametrize("router", [Unconditional, Commit])
@pytest.mark.parametrize("name", SYSTEMS)
def test_exact_in_one_layer_without_time(name: str, router: type) -> None:
    """Keys and values then depend on nothing but the tokens: the same logits in every iteration."""
    (plain, logits), (cached, others) = (generate(name, 1, True, 4, cache, router) for cache in (False, True))
    assert torch.equal(plain.tokens, cached.tokens)
    assert len(logits) == len(others)
    for ours, theirs in zip(logits, others, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SYSTEMS)
def test_exact_with_one_iteration_per_block(name: str) -> None:
    """The first call of a block computes all positions."""
    (plain, logits), (cached, others) = (generate(name, 2, False, 1, cache) for cache in (False, True))
    assert torch.equal(plain.tokens, cached.tokens)
    for ours, theirs in zip(logits, others, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SYSTEMS)
def test_approximate_otherwise(name: str) -> None:
    """Two layers: the first call is exact, the second is not."""
    (_, logits), (_, others) = (generate(name, 2, False, 4, cache) for cache in (False, True))
    torch.testing.assert_close(logits[0], others[0], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(logits[1], others[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SYSTEMS)
def test_positions_computed(name: str) -> None:
    """All positions in the first call of a block, and those of the block in the others."""
    build, source, candidates = SYSTEMS[name]
    system, sizes = build(2, False), []
    decoding = Sampler("test", 3, Unconditional(), Linear(), length_candidates=candidates, block=3, block_cache=True)
    system.denoiser.time.register_forward_hook(lambda *_: None)
    embed = system.denoiser.network.embed
    system.denoiser.network.embed = lambda tokens, start=0: sizes.append(tokens.shape[1]) or embed(tokens, start)
    system.generate(source, decoding, seeded())
    for place in range(0, len(sizes), 3):
        first, *rest = sizes[place : place + 3]
        assert first == max(sizes)
        assert all(size <= 3 for size in rest)


def test_a_cache_needs_blocks() -> None:
    with pytest.raises(UserError, match=r"decoding\.block_cache=true needs decoding\.block"):
        Sampler("test", 4, Unconditional(), Linear(), block_cache=True)
