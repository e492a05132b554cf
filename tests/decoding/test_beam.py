"""Beam search against enumeration and against a reference implementation; rows computed; trace."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from rdm.decoding.beam import BeamSearch, NBest
from rdm.decoding.trace import GrowingText
from rdm.errors import UserError
from rdm.vocab import Vocab
from tests.decoding.helpers import seeded

VOCAB = Vocab(size=7)
EOS, BOS, PAD = VOCAB.eos, VOCAB.bos, VOCAB.pad
LONGEST, SOURCES = 3, 6


class Table:
    """A model with logits ``[B, V ** LONGEST, V]`` that depend on the source and the whole prefix."""

    def __init__(self, seed: int = 0, sharpness: float = 1.5, brevity: float = 0.0) -> None:
        size = VOCAB.size
        self.logits = sharpness * torch.randn(SOURCES, size**LONGEST, size, generator=seeded(seed))
        self.logits[:, :, EOS] += brevity

    def log_prob(self, source: int, text: tuple[int, ...]) -> float:
        """Return the log-probability of a text without ``<bos>``."""
        total = 0.0
        for length, token in enumerate(text):
            total += float(self.logits[source, code(text[:length])].log_softmax(-1)[token])
        return total


def code(text: tuple[int, ...]) -> int:
    return sum((1 + token) * (VOCAB.size + 1) ** place for place, token in enumerate(text)) % VOCAB.size**LONGEST


class Writer:
    """The continuation interface of a :class:`Table`; stores the number of rows of every call."""

    def __init__(self, table: Table, sources: list[int]) -> None:
        self.table, self.sources = table, torch.tensor(sources)
        self.texts: list[tuple[int, ...]] = [()] * len(sources)
        self.rows: list[int] = []

    def __call__(self, tokens: Tensor) -> Tensor:
        self.rows.append(len(tokens))
        first = not self.rows[1:]
        self.texts = [
            text if first else (*text, token) for text, token in zip(self.texts, tokens.tolist(), strict=True)
        ]
        beams = len(tokens) // len(self.sources)
        owners = self.sources.repeat_interleave(beams).tolist()
        return torch.stack(
            [self.table.logits[owner, code(text)] for owner, text in zip(owners, self.texts, strict=True)]
        )

    def select(self, sources: Tensor, rows: Tensor) -> None:
        self.sources, self.texts = self.sources[sources], [self.texts[row] for row in rows.tolist()]


def search(table: Table, beam_size: int, penalty: float = 1.0, sources: list[int] | None = None) -> NBest:
    sources = list(range(SOURCES)) if sources is None else sources
    first = torch.full((len(sources),), BOS)
    return BeamSearch("beam", beam_size, penalty).run(Writer(table, sources), first, LONGEST, VOCAB)


def row(text: tuple[int, ...]) -> list[int]:
    return [BOS, *text] + [PAD] * (LONGEST + 1 - len(text))


def exhaustive(table: Table, source: int, penalty: float) -> tuple[float, tuple[int, ...]]:
    """Return the best of all texts of up to three tokens and ``<eos>``."""
    others = [token for token in range(VOCAB.size) if token != EOS]
    texts = [(*text, EOS) for length in range(LONGEST + 1) for text in product(others, repeat=length)]
    return max((table.log_prob(source, text) / len(text) ** penalty, text) for text in texts)


def reference(table: Table, source: int, beam_size: int, penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    """Beam search for one source with lists: up to ``beam_size`` finished texts, the best first."""
    live, finished = [(0.0, ())], []
    for length in range(1, LONGEST + 2):
        tokens = range(VOCAB.size) if length <= LONGEST else [EOS]
        options = [(table.log_prob(source, (*text, token)), (*text, token)) for _, text in live for token in tokens]
        options.sort(reverse=True)
        finished += [(score / length**penalty, text) for score, text in options[:beam_size] if text[-1] == EOS]
        if len(finished) >= beam_size:
            break
        live = [option for option in options if option[1][-1] != EOS][:beam_size]
    return sorted(finished, reverse=True)[:beam_size]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_wide_beam_is_exhaustive_search(penalty: float) -> None:
    """If every prefix fits into the beam, the best text is found; with a narrow beam it is not."""
    table = Table()
    wide, narrow = search(table, 6**LONGEST + 50, penalty), search(table, 1, penalty)
    expected = [exhaustive(table, source, penalty) for source in range(SOURCES)]
    assert wide.tokens[:, 0].tolist() == [row(text) for _, text in expected]
    torch.testing.assert_close(wide.scores[:, 0], torch.tensor([score for score, _ in expected]))
    assert narrow.tokens[:, 0].tolist() != wide.tokens[:, 0].tolist()
    assert len({len(text) for _, text in expected}) > 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
def test_n_best_equals_the_reference(beam_size: int, penalty: float, seed: int) -> None:
    """All finished texts and scores, also if the sources of a batch are done after different numbers of steps."""
    table = Table(seed, sharpness=3.0, brevity=2.0)
    found = search(table, beam_size, penalty)
    expected = [reference(table, source, beam_size, penalty) for source in range(SOURCES)]
    assert found.tokens.tolist() == [[row(text) for _, text in texts] for texts in expected]
    torch.testing.assert_close(found.scores, torch.tensor([[score for score, _ in texts] for texts in expected]))


def test_missing_texts_are_padding() -> None:
    """A beam wider than the number of possible texts returns padding with the score -inf behind them."""
    vocab = Vocab(size=7)
    possible = 6**0 + 6**1  # up to one token, then <eos>
    writer = Writer(Table(), [0, 1])
    found = BeamSearch("beam", 9).run(writer, torch.full((2,), BOS), 1, vocab)
    assert found.scores.isfinite().sum(1).tolist() == [possible, possible]
    assert (found.tokens[~found.scores.isfinite()] == PAD).all()
    assert (found.scores[:, :-1] >= found.scores[:, 1:]).all()


def test_beam_of_one_is_greedy() -> None:
    table = Table(3)
    for source, found in enumerate(search(table, 1).tokens[:, 0].tolist()):
        text: tuple[int, ...] = ()
        while EOS not in text:
            text += (int(table.logits[source, code(text)].argmax()) if len(text) < LONGEST else EOS,)
        assert found == row(text)


def test_length_penalty_prefers_longer_texts() -> None:
    lengths = [(search(Table(), 300, penalty).tokens[:, 0] != PAD).sum() for penalty in (0.0, 1.0, 3.0)]
    assert lengths[0] < lengths[1] < lengths[2]


def test_finished_sources_are_not_computed() -> None:
    """One row per source in the first call, then the beam of each source that is not done."""
    table = Table(1, sharpness=3.0, brevity=2.0)
    writer = Writer(table, list(range(SOURCES)))
    BeamSearch("beam", 2).run(writer, torch.full((SOURCES,), BOS), LONGEST, VOCAB)
    alone = []
    for source in range(SOURCES):
        single = Writer(table, [source])
        BeamSearch("beam", 2).run(single, torch.tensor([BOS]), LONGEST, VOCAB)
        alone.append(single.rows)
    calls = max(map(len, alone))
    assert writer.rows == [sum(rows[call] for rows in alone if call < len(rows)) for call in range(calls)]
    assert {len(rows) for rows in alone} != {calls}
    assert writer.rows[0] == SOURCES


def test_trace_shows_the_leading_text() -> None:
    """It starts empty, grows by one token and ends with the returned text."""
    table, trace = Table(1, sharpness=3.0), GrowingText()
    found = BeamSearch("beam", 2).run(Writer(table, [0, 1, 2]), torch.full((3,), BOS), LONGEST, VOCAB, trace)
    first, second = trace.frames[0].tokens, trace.frames[1].tokens
    assert first.tolist() == [row(())] * 3
    firsts = table.logits[:3, code(())].clone()
    firsts[:, EOS] = float("-inf")
    assert second[:, 1].tolist() == firsts.argmax(-1).tolist()
    assert torch.equal(trace.frames[-1].tokens, found.tokens[:, 0])
    assert [frame.iteration for frame in trace.frames] == list(range(len(trace.frames)))
    assert not any(frame.noisy.any() for frame in trace.frames)
    for frame in trace.frames:
        for source, (ids, confidence) in enumerate(zip(frame.tokens.tolist(), frame.confidence.tolist(), strict=True)):
            text = tuple(ids[1 : ids.index(PAD)] if PAD in ids else ids[1:])
            each = [table.log_prob(source, text[: n + 1]) - table.log_prob(source, text[:n]) for n in range(len(text))]
            assert confidence[1 : len(text) + 1] == pytest.approx([math.exp(value) for value in each], rel=1e-4)


def test_invalid_arguments() -> None:
    with pytest.raises(UserError, match="beam_size must be at least 1"):
        BeamSearch("beam", 0)
    for penalty in (1000.0, -11.0, math.nan, math.inf):
        with pytest.raises(UserError, match=f"length_penalty must lie between -10 and 10, got {penalty}"):
            BeamSearch("beam", length_penalty=penalty)
    assert BeamSearch("beam", length_penalty=-10).length_penalty == -10
