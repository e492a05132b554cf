"""Beam search that predicts several tokens at once and corrects their probabilities in the next call."""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from rdm.decoding.transition import Action, Outcome, Progress, Router, Start, State


class Drafts(Router):
    """Denoises the next tokens from left to right, and scores them again where those before them are known.

    The network must predict a denoised token from the tokens before it (``system=any_order``). The ``k`` tokens of an
    iteration are predicted independently of each other, so only the score of the first is its log-probability given the
    text before it. The next call, which sees all of them, also returns the log-probabilities of the others,

        log p(x0[n] | x_t[< n])

    which replace their scores. The tokens stay; it is for a beam search to prefer hypotheses in which they fit. What
    the last iteration denoises keeps its first scores.

    >>> Drafts().describe()
    {'class': 'Drafts', 'sent_back_interpolates': False}
    """

    left_to_right: ClassVar[bool] = True
    any_number_of_steps: ClassVar[bool] = True

    def plan(self, start: Start) -> list[int]:
        start.memo["scored"] = torch.zeros_like(start.free)  # tokens with the log-probability given all before them
        return super().plan(start)

    def active(self, progress: Progress) -> Tensor:
        wanted = progress.free.cumsum(1) <= progress.count[:, None]
        return progress.free & wanted & ~progress.memo["scored"][progress.rows]

    def route(self, state: State) -> Tensor:
        new = state.active & ~state.denoised
        return torch.where(new, Action.PROPOSE, torch.where(state.denoised, Action.KEEP, Action.NOISE))

    def step(self, state: State) -> Outcome:
        outcome, drafted = super().step(state), state.active & state.denoised
        new = state.active & ~state.denoised
        logits = state.logits[drafted[state.active]].float()
        own = logits.gather(1, state.tokens[drafted][:, None]).squeeze(1) - logits.logsumexp(1)
        state.memo["scored"][state.rows] = state.free & (state.denoised | (new & (new.cumsum(1) == 1)))
        return replace(outcome, stored=outcome.stored.masked_scatter(drafted, own))
