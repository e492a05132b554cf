"""An observer that records insertions and deletions, with every token in a column of its own."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from rdm.decoding.trace import Frame
from rdm.vocab import Vocab

if TYPE_CHECKING:
    from rdm.decoding.levenshtein import Edit


@dataclass
class _Cell:
    """What a frame shows of one token."""

    token: int
    score: float
    deleted: bool = False


@dataclass
class _Row:
    """One row: all tokens it ever had, in their order (``slots``), and those it has now, by column (``live``)."""

    slots: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    cells: dict[int, _Cell] = field(default_factory=dict)  # by slot

    def edit(self, tokens: list[int], origin: list[int], scores: list[float]) -> None:
        live: list[int] = []
        for column in origin:
            if column >= 0:
                live.append(self.live[column])
            else:
                slot = len(self.slots)
                self.slots.insert(self.slots.index(live[-1]) + 1 if live else 0, slot)
                live.append(slot)
        deleted = {
            slot: _Cell(self.cells[slot].token, self.cells[slot].score, True) for slot in set(self.live) - {*live}
        }
        self.live = live
        cells = zip(live, tokens, scores, strict=True)
        self.cells = deleted | {slot: _Cell(token, score) for slot, token, score in cells}


@dataclass
class EditTrace:
    """Records the edits of :class:`~rdm.decoding.levenshtein.LevenshteinDecoding`.

    Each frame is one kind of edit: deletions (shown once, then gone), placeholders, tokens.
    """

    legend: str = "[brackets] are placeholders, ~tildes~ deleted tokens; deletions, insertions and tokens by turns"
    rows: dict[int, _Row] = field(default_factory=dict)
    history: list[dict[int, dict[int, _Cell]]] = field(default_factory=list)
    vocab: Vocab | None = None  # set by the first edit

    def __call__(self, edit: "Edit") -> None:
        self.vocab = edit.vocab
        columns = (edit.rows, edit.tokens, edit.origin, edit.scores)
        for row in self.rows.values():  # of finished rows, and deletions are shown once
            row.cells = {slot: cell for slot, cell in row.cells.items() if not cell.deleted}
        for index, tokens, origin, scores in zip(*(column.tolist() for column in columns), strict=True):
            size = sum(token != edit.vocab.pad for token in tokens)
            self.rows.setdefault(index, _Row()).edit(tokens[:size], origin[:size], scores[:size])
        self.history.append({index: dict(row.cells) for index, row in self.rows.items()})

    @cached_property
    def frames(self) -> list[Frame]:
        """All frames, in which a token keeps its column from its insertion to its deletion."""
        assert self.vocab is not None
        shape = len(self.rows), max(len(row.slots) for row in self.rows.values())
        frames = []
        for iteration, cells in enumerate(self.history):
            tokens = torch.full(shape, self.vocab.pad)
            noisy, deleted = torch.ones(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
            confidence = torch.full(shape, float("nan"))
            for index, row in self.rows.items():
                for column, slot in enumerate(row.slots):
                    if slot in cells[index]:
                        cell = cells[index][slot]
                        tokens[index, column] = cell.token
                        noisy[index, column] = cell.token == self.vocab.mask
                        deleted[index, column] = cell.deleted
                        confidence[index, column] = cell.score
            frames.append(Frame(iteration, tokens, noisy, confidence.exp(), deleted))
        return frames
