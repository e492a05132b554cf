"""What is shown of a decoding, for every kind of system."""

from collections.abc import Callable

import pytest
import torch

from rdm.data.pairs import PairsDataModule
from rdm.decoding.base import Decoding
from rdm.decoding.beam import BeamSearch
from rdm.decoding.gaussian import GaussianSampler
from rdm.decoding.trace import Frame, TokenState
from rdm.describe import flatten
from rdm.page.trajectory import thin_frames, trace_decoding
from rdm.systems.base import System
from rdm.vocab import Vocab
from tests.builders import RECIPES, sampler, tiny_autoregressive, tiny_diffuseq, tiny_system, toy_data

Way = tuple[Callable[[Vocab], System], Decoding]
WAYS: dict[str, Way] = {
    **{name: (lambda vocab, name=name: tiny_system(vocab, name), sampler(name)) for name in RECIPES},  # type: ignore[misc]
    "ar": (tiny_autoregressive, BeamSearch("beam", 3)),
    "diffuseq": (tiny_diffuseq, GaussianSampler("diffuseq", 6, samples=2)),
}


@pytest.fixture(scope="module")
def data() -> PairsDataModule:
    return toy_data(train=16)


@pytest.mark.parametrize("name", WAYS)
def test_every_system_can_be_followed(name: str, data: PairsDataModule) -> None:
    """The way begins with noise or nothing, ends with the text returned, and following changes nothing."""
    make, decoding = WAYS[name]
    torch.manual_seed(0)
    system = make(data.vocab).eval()
    rows = data.questions("test").rows[:2]
    generator = torch.Generator().manual_seed(5)
    plain = system.generate(data.sources(rows), decoding, generator)
    ways = trace_decoding("untrained", system, decoding, data.codec, rows, seed=5)
    assert [way.output for way in ways] == data.tokenizer.decode(plain.tokens.tolist())
    for index, way in enumerate(ways):
        assert (way.model, way.strategy, way.settings) == ("untrained", str(decoding), flatten(decoding.describe()))
        assert [step.iteration for step in way.steps] == list(range(len(way.steps)))
        assert {token.state for token in way.steps[0].tokens} <= {TokenState.NOISE}
        assert not any(token.noisy for token in way.steps[-1].tokens)
        hidden = (data.vocab.pad, data.vocab.bos, data.vocab.eos)
        expected = data.tokenizer.pieces([token for token in plain.tokens[index].tolist() if token not in hidden])
        assert [token.text for token in way.steps[-1].tokens][: len(expected)] == expected
        confidences = [token.confidence for step in way.steps[1:] for token in step.tokens]
        assert all(value is not None and 0 < value <= 1.00001 for value in confidences)
        assert len(way.lines()) == len(way.steps)


def test_candidates(data: PairsDataModule) -> None:
    """All lengths that were decoded, by score, and which was returned."""
    torch.manual_seed(0)
    system, decoding = tiny_system(data.vocab, "cmlm").eval(), sampler("cmlm", candidates=4)
    rows = data.questions("test").rows[:2]
    source = data.sources(rows)
    for index, way in enumerate(trace_decoding("", system, decoding, data.codec, rows, seed=1)):
        lengths = decoding.candidate_lengths(system.denoiser.length_logits(system.denoiser.encode(source)))
        assert sorted(each.length for each in way.candidates) == sorted(lengths[index].tolist())
        scores = [each.score for each in way.candidates]
        assert scores == sorted(scores, reverse=True)
        assert [each.chosen for each in way.candidates] == [True, False, False, False]
        assert way.candidates[0].text == way.output
        assert len(way.steps[-1].tokens) == way.candidates[0].length


def test_a_search_has_no_candidates(data: PairsDataModule) -> None:
    system = tiny_autoregressive(data.vocab).eval()
    (way,) = trace_decoding("", system, BeamSearch("greedy", 1), data.codec, data.questions("test").rows[:1], seed=1)
    assert way.candidates == []


def test_long_ways_are_thinned() -> None:
    empty = torch.zeros(1, 1)
    frames = [Frame(iteration, empty, empty, empty) for iteration in range(2001)]
    assert [frame.iteration for frame in thin_frames(frames)] == list(range(0, 2001, 20))
    assert thin_frames(frames[:11]) == frames[:11]
    assert [frame.iteration for frame in thin_frames(frames[:8], intervals=3)] == [0, 2, 5, 7]
    assert thin_frames(frames[:1]) == frames[:1]
