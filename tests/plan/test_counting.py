"""Operations and bytes of a training step against counts by hand."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from rdm.bench.inputs import random_batch
from rdm.data.batching import Batch
from rdm.plan.counting import count_step, fake_parameters
from rdm.systems.base import System
from rdm.vocab import Vocab
from tests.test_config import choices, config

B, S, N, V, D, H = 6, 9, 7, 101, 128, 256  # sentences, source, target, vocabulary, and the widths of model=tiny


def batch_of_shape(vocab: Vocab) -> Batch:
    batch, other = random_batch(vocab.size, B, N), random_batch(vocab.size, B, S)
    batch.source = other.source
    return batch


def linear(rows: int, inputs: int, outputs: int) -> int:
    """Operations of a linear layer: forward, gradient of the input, gradient of the weights."""
    return 3 * 2 * rows * inputs * outputs


def attention(queries: int, keys: int) -> int:
    """Per row: scores and mixture forward; five products of that size backward, scores computed again among them."""
    return (2 + 5) * 2 * queries * keys * D


def fake_system(composed: DictConfig) -> System:
    composed.vocab = {**composed.vocab, "size": V}
    with fake_parameters():
        return instantiate(composed.system)


def test_operations_are_those_counted_by_hand() -> None:
    """The autoregressive model: all target positions but the last are decoded and projected, once."""
    cost = count_step(fake_system(config("system=ar")), batch_of_shape(Vocab(V)), Vocab(V))
    source, target = B * S, B * (N - 1)
    feed_forward = 2 * linear(1, D, H)
    encoder = source * (4 * linear(1, D, D) + feed_forward) + B * attention(S, S)
    decoder = (
        target * (6 * linear(1, D, D) + feed_forward)  # self-attention, and query and output of cross-attention
        + source * 2 * linear(1, D, D)  # keys and values of cross-attention
        + B * (attention(N - 1, N - 1) + attention(N - 1, S))
    )
    embeddings = linear(source + S + target + N - 1, D, D)  # tokens of every sentence, positions once
    assert cost.flops["encoder"] == 2 * encoder
    assert cost.flops["decoder"] + cost.flops["other"] == 2 * decoder + embeddings
    assert cost.flops["decoder"] == pytest.approx(2 * decoder, rel=0.05)
    assert cost.flops["vocabulary"] == linear(target, D, V)


def test_the_conditioned_pair_is_decoded_twice_and_encoded_once() -> None:
    """And the vocabulary is projected where there is noise only."""
    batch, vocab = batch_of_shape(Vocab(V)), Vocab(V)
    pair, single = (
        count_step(fake_system(config(f"diffusion/pairing={name}")), batch, vocab).flops
        for name in ("conditioned", "single")
    )
    keys = 2 * B * S * 2 * linear(1, D, D)  # of cross-attention, once a source
    assert pair["encoder"] == single["encoder"]
    assert pair["decoder"] - keys == pytest.approx(2 * (single["decoder"] - keys), rel=0.01)
    assert pair["vocabulary"] < linear(2 * B * N, D, V)


@pytest.mark.parametrize(
    "overrides",
    [(f"diffusion={name}",) for name in choices("diffusion")] + [(f"system={n}",) for n in choices("system")],
)
def test_every_system_can_be_counted(overrides: tuple[str]) -> None:
    composed = config(*overrides)
    batch = random_batch(V, 3, 12, given="length" not in composed.data)
    cost = count_step(fake_system(composed), batch, Vocab(V), "bf16-mixed")
    assert cost.flops.total() > 0
    assert cost.activations > 0


def test_memory_of_activations() -> None:
    """Twice the sentences need twice the memory; half precision and gradient checkpoints need less."""
    options = ("system=lm", "model=llama_tiny", "data=toy_text")

    def activations(sentences: int, precision: str = "32-true", *overrides: str) -> int:
        torch.manual_seed(0)
        batch = random_batch(V, sentences, 32, given=False)
        return count_step(fake_system(config(*options, *overrides)), batch, Vocab(V), precision).activations

    whole = activations(64)
    assert activations(128) == pytest.approx(2 * whole, rel=0.1)
    # Under 0.6: with what attention keeps, which on a CPU would be float32.
    assert activations(64, "bf16-mixed") < 0.6 * whole
    assert activations(64, "32-true", "model.checkpoint_gradients=true") < 0.6 * whole
