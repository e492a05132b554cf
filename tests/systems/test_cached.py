"""Cached keys and values of a block or of unchanged tokens: where they are exact, and where not."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rdm.decoding.routing import Commit, Unconditional
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.decoding.search import Particles
from rdm.decoding.transition import Router
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


BLOCKS = {"block": 3, "block_cache": True}
TOKENS = {"token_cache": 3}


def generate(
    name: str, layers: int, timeless: bool, steps: int, options: dict[str, Any], router: type = Unconditional
) -> tuple[Hypotheses, list[Tensor]]:
    build, source, candidates = SYSTEMS[name]
    decoding = Sampler("test", steps, router(), Linear(), length_candidates=candidates, **options)
    recorder = Recorder()
    best = build(layers, timeless).generate(source, decoding, seeded(), recorder)
    return best, [state.logits for state, _ in recorder]


def with_and_without(cache: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a decoding without the cache and with it."""
    return {key: value for key, value in cache.items() if key == "block"}, cache


@pytest.mark.parametrize("router", [Unconditional, Commit])
@pytest.mark.parametrize("cache", [BLOCKS, TOKENS], ids=str)
@pytest.mark.parametrize("name", SYSTEMS)
def test_exact_in_one_layer_without_time(name: str, cache: dict[str, Any], router: type) -> None:
    """Keys and values then depend on nothing but the tokens: the same logits in every iteration."""
    (plain, logits), (cached, others) = (generate(name, 1, True, 4, each, router) for each in with_and_without(cache))
    assert torch.equal(plain.tokens, cached.tokens)
    assert len(logits) == len(others)
    for ours, theirs in zip(logits, others, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("cache", "steps"), [(BLOCKS, 1), ({"token_cache": 1}, 4)], ids=str)
@pytest.mark.parametrize("name", SYSTEMS)
def test_exact_if_every_call_computes_all_positions(name: str, cache: dict[str, Any], steps: int) -> None:
    (plain, logits), (cached, others) = (generate(name, 2, False, steps, each) for each in with_and_without(cache))
    assert torch.equal(plain.tokens, cached.tokens)
    for ours, theirs in zip(logits, others, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cache", [BLOCKS, TOKENS], ids=str)
@pytest.mark.parametrize("name", SYSTEMS)
def test_approximate_otherwise(name: str, cache: dict[str, Any]) -> None:
    """Two layers: the first call is exact, the second is not."""
    (_, logits), (_, others) = (generate(name, 2, False, 4, each, Commit) for each in with_and_without(cache))
    torch.testing.assert_close(logits[0], others[0], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(logits[1], others[1], rtol=1e-4, atol=1e-4)


def positions_computed(name: str, router: Router, steps: int, options: dict[str, Any]) -> list[int]:
    """Return the number of positions per row in every run of the first layer of the decoder."""
    build, source, candidates = SYSTEMS[name]
    decoding = Sampler("test", steps, router, Linear(), length_candidates=candidates, **options)
    system, sizes = build(2, False), []
    network = system.denoiser.network
    layers = network.blocks if isinstance(network, Llama) else network.decoder
    layers[0].register_forward_hook(lambda _, inputs, output: sizes.append(inputs[0].shape[1]))
    system.generate(source, decoding, seeded())
    return sizes


@pytest.mark.parametrize("name", SYSTEMS)
def test_positions_computed_with_blocks(name: str) -> None:
    """All positions in the first call of a block, and those of the block in the others."""
    sizes = positions_computed(name, Unconditional(), steps=3, options=BLOCKS)
    for place in range(0, len(sizes), 3):
        first, *rest = sizes[place : place + 3]
        assert first == max(sizes)
        assert all(size <= 3 for size in rest)


@pytest.mark.parametrize("name", SYSTEMS)
def test_positions_computed_with_cached_tokens(name: str) -> None:
    """All positions in every third call; fewer and fewer in between, as tokens stay denoised."""
    sizes = positions_computed(name, Commit(), steps=9, options=TOKENS)
    assert all((size == max(sizes)) == (call % 3 == 0) for call, size in enumerate(sizes))
    between = [size for call, size in enumerate(sizes) if call % 3]
    assert between == sorted(between, reverse=True)
    assert between[-1] < between[0]


def test_cached_tokens_do_not_depend_on_the_batch() -> None:
    decoding = Sampler("test", 5, Commit(), Linear(), length_candidates=2, **TOKENS)
    system = seq2seq(2, False)
    together = system.generate(SOURCES, decoding, seeded())
    for row, source in enumerate(SOURCES):
        alone = system.generate(source[None, source != VOCAB.pad], decoding, seeded())
        length = alone.tokens.shape[1]
        assert torch.equal(together.tokens[row, :length], alone.tokens[0])


def test_refusals() -> None:
    with pytest.raises(UserError, match=r"decoding\.block_cache=true needs decoding\.block"):
        Sampler("test", 4, Unconditional(), Linear(), block_cache=True)
    with pytest.raises(UserError, match=r"token_cache and block_cache: use only one"):
        Sampler("test", 4, Unconditional(), Linear(), **BLOCKS, **TOKENS)
    with pytest.raises(UserError, match="cannot be combined with prune_after"):
        Sampler("test", 4, Unconditional(), Linear(), prune_after=2, **TOKENS)
    with pytest.raises(UserError, match="cannot be combined with prune_after or search"):
        Sampler("test", 4, Unconditional(), Linear(), samples=4, search=Particles(), **BLOCKS)
    with pytest.raises(UserError, match=r"decoding\.token_cache must be at least 1"):
        Sampler("test", 4, Unconditional(), Linear(), token_cache=0)
