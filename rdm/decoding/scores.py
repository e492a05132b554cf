"""Scores by which routers rank tokens: larger is more certain, and 0 is the maximum.

>>> import torch
>>> from rdm.decoding.scores import Margin, NegativeEntropy
>>> logits = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.5, 1e-9]]).log()
>>> Margin().values(logits).exp(), NegativeEntropy().values(logits)
(tensor([0.2500, 0.0000]), tensor([-1.0397, -0.6931]))
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.cross_entropy import rows_at_once
from rdm.decoding.transition import Action, Outcome, State
from rdm.describe import Described


class Score(Described, ABC):
    """What a ranking router knows of every token: its score now, and when it was last denoised."""

    @abstractmethod
    def now(self, state: State) -> Tensor:
        """Return the scores ``[R, N]`` of this iteration; the stored score at inactive positions."""

    @abstractmethod
    def stored(self, state: State) -> Tensor:
        """Return the score ``[R, N]`` of every token when it was last denoised; 0 before."""

    def remember(self, state: State, outcome: Outcome) -> None:
        """Store the scores of the tokens denoised in this iteration."""


class Confidence(Score):
    """The log-probability of the proposal, as in the paper; the sampler stores it.

    >>> Confidence().describe()
    {'class': 'Confidence'}
    """

    def now(self, state: State) -> Tensor:
        return state.scores

    def stored(self, state: State) -> Tensor:
        return state.stored


class LogitScore(Score):
    """Base class of scores of the whole distribution; what was stored is kept in the memo."""

    MEMO = "ranking scores"

    @abstractmethod
    def values(self, logits: Tensor) -> Tensor:
        """Return the score ``[P]`` of each distribution ``softmax(logits [P, V])``."""

    def now(self, state: State) -> Tensor:
        scores = self.stored(state)
        if len(state.logits):
            parts = [self.values(rows.float()) for rows in state.logits.split(rows_at_once(state.logits))]
            scores = scores.masked_scatter(state.active, torch.cat(parts))
        return scores

    def stored(self, state: State) -> Tensor:
        if self.MEMO not in state.memo:  # the first iteration, in which no candidate is pruned yet
            state.memo[self.MEMO] = torch.zeros_like(state.scores)
        return state.memo[self.MEMO][state.rows]

    def remember(self, state: State, outcome: Outcome) -> None:
        taken = torch.where(outcome.action == Action.PROPOSE, self.now(state), self.stored(state))
        state.memo[self.MEMO] = state.memo[self.MEMO].index_copy(0, state.rows, taken)


class Margin(LogitScore):
    """``log(p1 - p2)``, the margin between the two most likely tokens (Dream, Ye et al., 2025)."""

    def values(self, logits: Tensor) -> Tensor:
        first, second = logits.softmax(-1).topk(2).values.unbind(-1)
        return (first - second).log()


class NegativeEntropy(LogitScore):
    """``-H``, the negative entropy of the distribution in nats (Dream, Ye et al., 2025)."""

    def values(self, logits: Tensor) -> Tensor:
        return -torch.special.entr(logits.softmax(-1)).sum(-1)


class LeftToRight(Score):
    """The position: earlier tokens are denoised first, several in one iteration if ``k`` says so."""

    def now(self, state: State) -> Tensor:
        positions = torch.arange(state.scores.shape[1], device=state.scores.device, dtype=state.scores.dtype)
        return -positions.expand_as(state.scores)

    def stored(self, state: State) -> Tensor:
        return self.now(state)
