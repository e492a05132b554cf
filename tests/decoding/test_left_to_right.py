"""Left-to-right sampling: finished rows, scores, trace, temperature and nucleus."""

import math

import pytest
import torch
from torch import Tensor

from rdm.decoding.left_to_right import LeftToRight
from rdm.decoding.trace import GrowingText
from rdm.errors import UserError
from rdm.vocab import Vocab

VOCAB = Vocab(size=9)
A, B, C, D = range(5, 9)


class Script:
    """A reader that continues every row as scripted; stores the number of rows and the tokens of every call."""

    def __init__(self, *rows: list[int]) -> None:
        self.rows, self.column, self.row_counts = [list(row) for row in rows], 0, []
        self.seen: list[list[list[int]]] = []

    def __call__(self, tokens: Tensor) -> Tensor:
        assert len(tokens) == len(self.rows)
        self.row_counts.append(len(tokens))
        self.seen.append(tokens.tolist())
        logits = torch.zeros(len(tokens), VOCAB.size)
        for row, script in enumerate(self.rows):
            logits[row, script[self.column]] = 2.0
        self.column += 1
        return logits

    def keep(self, rows: Tensor) -> None:
        self.rows = [row for row, kept in zip(self.rows, rows.tolist(), strict=True) if kept]


def test_finished_rows_are_not_computed() -> None:
    eos, pad = VOCAB.eos, VOCAB.pad
    reader = Script([A, eos], [B, C, D, A], [eos], [A, B, eos])
    prompt = torch.tensor([[VOCAB.bos, A], [VOCAB.bos, B], [VOCAB.bos, C], [VOCAB.bos, D]])
    decoded = LeftToRight("test", temperature=0.0).run(reader, prompt, 4, VOCAB)
    assert decoded.tokens.tolist() == [[A, eos, pad, pad], [B, C, D, A], [eos, pad, pad, pad], [A, B, eos, pad]]
    assert reader.row_counts == [4, 3, 2, 1]
    assert reader.seen == [prompt.tolist(), [[A], [B], [A]], [[C], [B]], [[D]]]


def test_generation_ends_when_all_rows_are_finished() -> None:
    reader = Script([A, VOCAB.eos], [VOCAB.eos])
    decoded = LeftToRight("test", temperature=0.0).run(reader, torch.full((2, 1), VOCAB.bos), 6, VOCAB)
    assert reader.row_counts == [2, 1]
    assert decoded.tokens.shape == (2, 6)


def test_score_is_the_mean_log_probability() -> None:
    """Including ``<eos>``; every generated id has the logit 2 among eight of logit 0."""
    reader = Script([A, VOCAB.eos], [B, C, D])
    decoded = LeftToRight("test", temperature=0.0).run(reader, torch.full((2, 1), VOCAB.bos), 3, VOCAB)
    expected = 2 - torch.log(torch.exp(torch.tensor(2.0)) + 8)
    torch.testing.assert_close(decoded.scores, expected.expand(2))


def test_trace_starts_empty() -> None:
    """Each frame has one more token with its probability."""
    trace = GrowingText()
    reader = Script([A, VOCAB.eos], [B, C, D])
    LeftToRight("test", temperature=0.0).run(reader, torch.full((2, 1), VOCAB.bos), 3, VOCAB, observer=trace)
    eos, pad = VOCAB.eos, VOCAB.pad
    assert [frame.tokens.tolist() for frame in trace.frames] == [
        [[pad, pad, pad], [pad, pad, pad]],
        [[A, pad, pad], [B, pad, pad]],
        [[A, eos, pad], [B, C, pad]],
        [[A, eos, pad], [B, C, D]],
    ]
    sure = math.exp(2) / (math.exp(2) + 8)
    assert trace.frames[-1].confidence[1].tolist() == pytest.approx([sure] * 3)


def test_temperature_and_nucleus() -> None:
    """At top_p 0.1 only the most likely id is sampled, at 1 also others."""
    prompt = torch.full((50, 1), VOCAB.bos)

    def written(**options: float) -> Tensor:
        reader = Script(*[[A, B, C]] * 50)
        return LeftToRight("test", **options).run(reader, prompt, 3, VOCAB, torch.Generator().manual_seed(0)).tokens

    assert (written(temperature=1.0, top_p=0.1) == torch.tensor([A, B, C])).all()
    assert (written(temperature=1.0, top_p=1.0)[:, 0] != A).any()


def test_description_and_errors() -> None:
    decoding = LeftToRight("left_to_right", max_tokens=7)
    assert decoding.describe() == {
        "class": "LeftToRight",
        "name": "left_to_right",
        "max_tokens": 7,
        "temperature": 1.0,
        "top_p": 0.95,
    }
    assert (decoding.steps, decoding.candidates) == (None, 1)
    with pytest.raises(UserError, match=r"decoding\.max_tokens must be at least 1, got 0"):
        LeftToRight("test", max_tokens=0)
    with pytest.raises(UserError, match=r"decoding\.top_p"):
        LeftToRight("test", top_p=0.0)
