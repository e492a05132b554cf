"""Denominators that systems declare for their loss terms."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rdm.data.batch import Batch
from rdm.systems.base import System
from rdm.vocab import Vocab
from tests.builders import (
    RECIPES,
    batch_from,
    tiny_any_order,
    tiny_autoregressive,
    tiny_cdcd,
    tiny_diffuseq,
    tiny_disco,
    tiny_levenshtein,
    tiny_system,
)
from tests.language_models import tiny_any_order_lm, tiny_ar_lm, tiny_lm, window_batch

VOCAB = Vocab(size=40)
SYSTEMS = [
    tiny_system,
    tiny_autoregressive,
    tiny_diffuseq,
    tiny_any_order,
    tiny_disco,
    tiny_levenshtein,
    tiny_cdcd,
    tiny_lm,
    tiny_any_order_lm,
    tiny_ar_lm,
]
BATCH = batch_from(VOCAB, [([5], [5, VOCAB.unk, 7]), ([7, 8], [8])])  # <bos> and <eos> are added, then padding
EOS = VOCAB.eos
WINDOWS = torch.tensor([[5, EOS, 6, 7, EOS, 8], [EOS, 5, 6, VOCAB.unk, 7, 8]])


def counts(system: System, batch: Batch) -> dict[str, int]:
    return {name: int(count) for name, count in system.counts(batch).items()}


@pytest.mark.parametrize("name", RECIPES)
def test_counts_of_seq2seq_diffusion(name: str) -> None:
    """Tokens include special symbols but no padding; ordinary tokens are text without ``<unk>``."""
    assert counts(tiny_system(VOCAB, name), BATCH) == {"sentences": 2, "tokens": 8, "ordinary": 3}


def test_counts_of_other_seq2seq_systems() -> None:
    """Next tokens are all but ``<bos>``."""
    assert counts(tiny_autoregressive(VOCAB), BATCH) == {"sentences": 2, "tokens": 8, "next": 6}
    assert counts(tiny_diffuseq(VOCAB), BATCH) == {"sentences": 2, "tokens": 8}


@pytest.mark.parametrize(("prefix", "tokens", "ordinary"), [(0, 12, 8), (2, 8, 6)])
def test_a_prefix_is_not_counted(prefix: int, tokens: int, ordinary: int) -> None:
    batch = window_batch(WINDOWS, prefix)
    assert counts(tiny_lm(VOCAB), batch) == {"sentences": 2, "tokens": tokens, "ordinary": ordinary}
    assert counts(tiny_ar_lm(VOCAB), batch) == {"sentences": 2, "tokens": tokens}


@pytest.mark.parametrize("build", SYSTEMS)
def test_every_term_has_its_denominator(build: Callable[..., Any]) -> None:
    """As scalars on the CPU, where the loader sums them over the batches of an optimiser step."""
    system = build(VOCAB)
    batch = window_batch(WINDOWS) if system.open_ended else BATCH
    declared = system.counts(batch)
    assert {term.unit for term in system.loss(batch)} <= set(declared)
    assert {"sentences", "tokens"} <= set(declared)
    assert all(count.shape == () and count.device.type == "cpu" for count in declared.values())
