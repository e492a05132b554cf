"""Trajectories of every kind of system."""

import math
from collections.abc import Callable

import pytest
import torch

from rdm.data.pairs import PairsDataModule
from rdm.decoding.base import Decoding
from rdm.decoding.beam import BeamSearch
from rdm.decoding.easy_first import EasyFirst
from rdm.decoding.euler import EulerSampler
from rdm.decoding.gaussian import GaussianSampler
from rdm.decoding.levenshtein import LevenshteinDecoding
from rdm.decoding.routing import Commit
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.decoding.trace import Frame, TokenState
from rdm.describe import flatten
from rdm.page.page import render
from rdm.page.trajectory import Example, thin_frames, trace_decoding
from rdm.systems.base import System
from rdm.vocab import Vocab
from tests.builders import (
    RECIPES,
    sampler,
    tiny_autoregressive,
    tiny_cdcd,
    tiny_diffuseq,
    tiny_disco,
    tiny_levenshtein,
    tiny_system,
    toy_data,
)

Case = tuple[Callable[[Vocab], System], Decoding]
CASES: dict[str, Case] = {
    **{name: (lambda vocab, name=name: tiny_system(vocab, name), sampler(name)) for name in RECIPES},  # type: ignore[misc]
    "ar": (tiny_autoregressive, BeamSearch("beam", 3)),
    "disco": (tiny_disco, EasyFirst("easy_first", 4, length_candidates=2)),
    "levt": (tiny_levenshtein, LevenshteinDecoding("levenshtein", 3)),
    "cdcd": (tiny_cdcd, EulerSampler("cdcd", 5, samples=2)),
    "diffuseq": (tiny_diffuseq, GaussianSampler("diffuseq", 6, samples=2)),
}


@pytest.fixture(scope="module")
def data() -> PairsDataModule:
    return toy_data(train=16)


@pytest.mark.parametrize("name", CASES)
def test_trajectories_end_in_the_output(name: str, data: PairsDataModule) -> None:
    """They begin with noise or nothing and end in the returned text, and tracing does not change the output."""
    make, decoding = CASES[name]
    torch.manual_seed(0)
    system = make(data.vocab).eval()
    rows = data.questions("test").rows[:2]
    generator = torch.Generator().manual_seed(5)
    plain = system.generate(data.codec.sources(rows), decoding, generator)
    trajectories = trace_decoding("untrained", system, decoding, data.codec, rows, seed=5)
    assert [trajectory.output for trajectory in trajectories] == data.codec.tokenizer.decode(plain.tokens.tolist())
    for index, trajectory in enumerate(trajectories):
        assert (trajectory.model, trajectory.strategy) == ("untrained", str(decoding))
        assert trajectory.settings == flatten(decoding.describe())
        assert [step.iteration for step in trajectory.steps] == list(range(len(trajectory.steps)))
        assert {token.state for token in trajectory.steps[0].tokens} <= {TokenState.NOISE}
        assert not any(token.noisy for token in trajectory.steps[-1].tokens)
        hidden = (data.vocab.pad, data.vocab.bos, data.vocab.eos)
        expected = data.codec.tokenizer.pieces([token for token in plain.tokens[index].tolist() if token not in hidden])
        assert [token.text for token in trajectory.steps[-1].tokens][: len(expected)] == expected
        confidences = [token.confidence for step in trajectory.steps[1:] for token in step.tokens]
        assert all(value is not None and 0 < value <= 1.00001 for value in confidences)
        assert len(trajectory.lines()) == len(trajectory.steps)


def test_candidates_are_listed_by_score(data: PairsDataModule) -> None:
    """All decoded lengths are listed by score, and the returned one is marked."""
    torch.manual_seed(0)
    system, decoding = tiny_system(data.vocab, "cmlm").eval(), sampler("cmlm", candidates=4)
    rows = data.questions("test").rows[:2]
    source = data.codec.sources(rows)
    for index, trajectory in enumerate(trace_decoding("", system, decoding, data.codec, rows, seed=1)):
        lengths = decoding.candidate_lengths(system.denoiser.length_logits(system.denoiser.encode(source)))
        assert sorted(each.length for each in trajectory.candidates) == sorted(lengths[index].tolist())
        scores = [each.score for each in trajectory.candidates]
        assert scores == sorted(scores, reverse=True)
        assert [each.chosen for each in trajectory.candidates] == [True, False, False, False]
        assert trajectory.candidates[0].text == trajectory.output
        assert len(trajectory.steps[-1].tokens) == trajectory.candidates[0].length


def test_beam_search_has_no_candidates(data: PairsDataModule) -> None:
    system = tiny_autoregressive(data.vocab).eval()
    (trajectory,) = trace_decoding(
        "", system, BeamSearch("greedy", 1), data.codec, data.questions("test").rows[:1], seed=1
    )
    assert trajectory.candidates == []


def test_the_page_shows_where_blocks_begin(data: PairsDataModule) -> None:
    """A text of n tokens in blocks of two has ceil(n / 2) - 1 borders in every iteration."""
    torch.manual_seed(0)
    system, rows = tiny_system(data.vocab, "rdm_absorbing").eval(), data.questions("test").rows[:1]
    decoding = Sampler("blocks", 2, Commit(), Linear(), length_candidates=1, block=2)
    (trajectory,) = trace_decoding("", system, decoding, data.codec, rows, seed=1)
    length = len(trajectory.steps[-1].tokens)
    assert length > 2
    borders = render([Example("source", [], [trajectory])]).count('class="block-border"')
    assert borders == (math.ceil(length / 2) - 1) * len(trajectory.steps)


def test_long_traces_are_thinned() -> None:
    empty = torch.zeros(1, 1)
    frames = [Frame(iteration, empty, empty, empty) for iteration in range(2001)]
    assert [frame.iteration for frame in thin_frames(frames)] == list(range(0, 2001, 20))
    assert thin_frames(frames[:11]) == frames[:11]
    assert [frame.iteration for frame in thin_frames(frames[:8], intervals=3)] == [0, 2, 5, 7]
    assert thin_frames(frames[:1]) == frames[:1]
