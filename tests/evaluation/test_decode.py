"""Decoding of many sources: order, scores, candidates, counted network calls."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rdm.data.pairs import PairsDataModule
from rdm.errors import UserError
from rdm.evaluation.generation import decode_sources
from rdm.systems.base import Hypotheses
from rdm.vocab import Vocab
from tests.builders import sampler, tiny_system, toy_data


@pytest.fixture(scope="module")
def data() -> PairsDataModule:
    return toy_data(train=16)


def test_outputs_are_in_the_order_of_the_sources(data: PairsDataModule) -> None:
    """Batches are sorted by length; each source gets the texts, scores and candidates of its position in the batch."""
    torch.manual_seed(0)
    system, decoding = tiny_system(data.vocab, "cmlm").eval(), sampler("cmlm", candidates=3)
    rows = data.questions("test").rows[:5]
    outputs = decode_sources(system, decoding, data.codec, rows, batch_size=5, seed=3)
    order = sorted(range(5), key=lambda index: -len(rows[index]))
    best = system.generate(data.codec.sources([rows[i] for i in order]), decoding, torch.Generator().manual_seed(3))
    assert best.candidates is not None
    for place, index in enumerate(order):
        assert outputs.texts[index] == data.codec.tokenizer.decode(best.tokens[place : place + 1].tolist())[0]
        assert outputs.scores[index] == best.scores[place].item()
        texts = data.codec.tokenizer.decode(best.candidates.tokens[place].tolist())
        ranked = sorted(zip(best.candidates.scores[place].tolist(), texts, strict=True), key=lambda each: -each[0])
        assert list(zip(outputs.candidate_scores[index], outputs.candidates[index], strict=True)) == ranked
        assert outputs.scores[index] == max(outputs.candidate_scores[index])
    assert outputs.seconds > 0


@dataclass(frozen=True)
class Counted(Hypotheses):
    calls: Tensor | None = None


class CountingSystem(nn.Module):
    """Returns the source; its score is minus its length, and it takes as many network calls as it has symbols."""

    open_ended = False

    def __init__(self, vocab: Vocab, counts: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.vocab, self.pad, self.counts = vocab, vocab.pad, counts

    def generate(self, source: Tensor, *_: Any) -> Counted:
        lengths = (source != self.pad).sum(1)
        scores = 2.0 - lengths  # <bos> and <eos> do not count
        return Counted(source, scores, torch.arange(len(source)), calls=lengths if self.counts else None)


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_calls_are_averaged_over_sentences(data: PairsDataModule, batch_size: int) -> None:
    rows = data.questions("test").rows[:4]
    lengths = [int((data.codec.sources([row]) != data.vocab.pad).sum()) for row in rows]
    for counts, expected in ((True, sum(lengths) / 4), (False, None)):
        system: Any = CountingSystem(data.vocab, counts)
        outputs = decode_sources(system, "toy", data.codec, rows, batch_size, seed=1)
        assert outputs.calls_per_sentence == expected
        tokens = sum(len(row) for row in rows)
        assert outputs.tokens_per_call == (tokens / sum(lengths) if counts else None)


def test_output_is_the_only_candidate_of_a_system_without_candidates(data: PairsDataModule) -> None:
    system: Any = CountingSystem(data.vocab, counts=False)
    rows = data.questions("test").rows[:3]
    outputs = decode_sources(system, "toy", data.codec, rows, batch_size=2, seed=1)
    assert outputs.texts == data.codec.tokenizer.decode(rows)
    assert outputs.scores == [-len(row) for row in rows]
    assert outputs.candidates == [[text] for text in outputs.texts]
    assert outputs.candidate_scores == [[score] for score in outputs.scores]


def test_batch_size_must_be_positive(data: PairsDataModule) -> None:
    with pytest.raises(UserError, match="batch_size must be at least 1, got 0"):
        decode_sources(tiny_system(data.vocab, "cmlm"), sampler("cmlm"), data.codec, [], batch_size=0, seed=1)
