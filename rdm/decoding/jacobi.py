"""Jacobi decoding: several tokens at a time from left to right, predicted again until those before them are final."""

from typing import ClassVar

import torch
from torch import Tensor

from rdm.decoding.transition import Action, Outcome, Progress, Router, Start, State
from rdm.errors import require


class Jacobi(Router):
    """Predicts the next tokens at the same time, and predicts them again after their neighbours (Song et al., 2021).

    The network must predict a denoised token from the tokens before it (``system=any_order``). After each call

        x_s[n] = argmax p(x0[n] | x_t[< n])        for the denoised tokens that are not final, and the next noisy ones

    and a token is final if those before it did not change. So each call makes at least one more token final, and every
    final token is that of greedy decoding from left to right. In each iteration at least as many tokens are denoised as
    the schedule says. What is not final after the last iteration is returned as it is.

    Args:
        ahead: number of tokens that are denoised in each call beside the first noisy one, if the schedule does not ask
            for more.

    >>> Jacobi(ahead=2).describe()
    {'class': 'Jacobi', 'ahead': 2}
    """

    left_to_right: ClassVar[bool] = True
    any_number_of_steps: ClassVar[bool] = True

    def __init__(self, ahead: int = 1) -> None:
        super().__init__()
        require(ahead >= 0, f"decoding.transition.ahead must be 0 or greater, got {ahead}")
        self.ahead = ahead

    def plan(self, start: Start) -> list[int]:
        start.memo["final"] = torch.zeros_like(start.free)
        return super().plan(start)

    def active(self, progress: Progress) -> Tensor:
        window = torch.maximum(progress.count, progress.denoised.sum(1) + 1 + self.ahead)
        in_window = progress.free.cumsum(1) <= window[:, None]
        return progress.free & in_window & ~progress.memo["final"][progress.rows]

    def route(self, state: State) -> Tensor:
        return torch.where(state.active, Action.PROPOSE, torch.where(state.denoised, Action.KEEP, Action.NOISE))

    def step(self, state: State) -> Outcome:
        outcome = super().step(state)
        changed = state.active & (~state.denoised | (outcome.tokens != state.tokens))
        changed_before = changed.cumsum(1) - changed.long()
        state.memo["final"][state.rows] = outcome.denoised & (changed_before == 0)
        return outcome

    def finished(self, state: State, outcome: Outcome) -> bool:
        return bool((state.memo["final"][state.rows] | ~state.free).all())
