"""FLOPs and memory of a training step against counts by hand."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from rdm.bench.inputs import random_batch
from rdm.data.batch import Batch
from rdm.plan.counting import count_step, fake_parameters
from rdm.systems.base import System
from rdm.vocab import Vocab
from tests.configs import choices, config

B, S, N, V, D, H = 6, 9, 7, 101, 128, 256  # sentences, source, target, vocabulary, and the widths of model=tiny


def batch_of_shape(vocab: Vocab) -> Batch:
    batch, other = random_batch(vocab.size, B, N), random_batch(vocab.size, B, S)
    batch.source = other.source
    return batch


def linear(rows: int, inputs: int, outputs: int) -> int:
    """FLOPs of a linear layer: forward, gradient of the input, gradient of the weights."""
    return 3 * 2 * rows * inputs * outputs


def attention(queries: int, keys: int) -> int:
    """FLOPs per row: two products forward; five of that size backward, with the scores recomputed."""
    return (2 + 5) * 2 * queries * keys * D


def fake_system(composed: DictConfig) -> System:
    composed.vocab = {**composed.vocab, "size": V}
    with fake_parameters():
        return instantiate(composed.system)


def test_flops_equal_a_count_by_hand() -> None:
    """For the autoregressive model, which decodes and projects all target positions but the last."""
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


def test_conditioned_pair_is_decoded_twice_and_encoded_once() -> None:
    """The output projection is computed at noisy positions only."""
    batch, vocab = batch_of_shape(Vocab(V)), Vocab(V)
    pair, single = (
        count_step(fake_system(config(f"diffusion/pairing={name}")), batch, vocab).flops
        for name in ("conditioned", "single")
    )
    keys = 2 * B * S * 2 * linear(1, D, D)  # of cross-attention, once per source
    assert pair["encoder"] == single["encoder"]
    assert pair["decoder"] - keys == pytest.approx(2 * (single["decoder"] - keys), rel=0.01)
    assert pair["vocabulary"] < linear(2 * B * N, D, V)


@pytest.mark.parametrize(
    "overrides",
    [(f"diffusion={name}",) for name in choices("diffusion")] + [(f"system={n}",) for n in choices("system")],
)
def test_every_system_can_be_counted(overrides: tuple[str]) -> None:
    composed = config(*overrides)
    batch = random_batch(V, 3, 12, with_source="length" not in composed.data)
    cost = count_step(fake_system(composed), batch, Vocab(V), "bf16-mixed")
    assert cost.flops.total() > 0
    assert cost.activations > 0


def test_memory_of_activations() -> None:
    """Memory is linear in the sentences; half precision and activation checkpointing need less."""
    options = ("system=lm", "model=llama_tiny", "data=toy_text")

    def activations(sentences: int, precision: str = "32-true", *overrides: str) -> int:
        torch.manual_seed(0)
        batch = random_batch(V, sentences, 32, with_source=False)
        return count_step(fake_system(config(*options, *overrides)), batch, Vocab(V), precision).activations

    baseline = activations(64)
    assert activations(128) == pytest.approx(2 * baseline, rel=0.1)
    # Attention is counted in half precision, though it runs in float32 on a CPU.
    assert activations(64, "bf16-mixed") < 0.6 * baseline
    assert activations(64, "32-true", "model.checkpoint_gradients=true") < 0.6 * baseline
