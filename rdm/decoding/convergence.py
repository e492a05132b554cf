"""Stopping early when the text no longer changes, for every transition."""

import torch
from torch import Tensor

from rdm.decoding.transition import Action, Outcome, Progress, Start, State, Transition
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require


class Converged(Transition):
    """A transition in which a row ends when the network's guess of its text repeats.

    The guess consists of the denoised tokens and the proposals at noisy positions. If it equals that of the row's last
    network call ``patience`` times in a row, the row takes it and is never asked again. To know the whole guess, the
    network's output is also read at noisy positions that the transition does not ask for; this costs no call.

    Args:
        transition: the transition that is ended early.
        patience: number of repetitions.

    >>> from rdm.decoding.routing import Unconditional
    >>> Converged(Unconditional(), patience=2).describe()["patience"]
    2
    """

    GUESS, REPEATS, ENDED = "guess", "repeats", "ended"

    def __init__(self, transition: Transition, patience: int = 1) -> None:
        require(patience >= 1, f"decoding.stop_on_convergence must be at least 1, got {patience}")
        self.transition, self.patience = transition, patience

    def check_noise(self, process: DiffusionProcess) -> None:
        self.transition.check_noise(process)

    def plan(self, start: Start) -> list[int]:
        free, memo = start.free, start.memo
        rows = torch.zeros(len(free), dtype=torch.long, device=free.device)
        # No id is -1, so that the first guess repeats nothing.
        memo |= {self.GUESS: torch.full(free.shape, -1, device=free.device), self.REPEATS: rows}
        memo[self.ENDED] = ~free.any(1)
        return self.transition.plan(start)

    def active(self, progress: Progress) -> Tensor:
        asked = self.transition.active(progress)
        rows = asked.any(1) & ~progress.memo[self.ENDED][progress.rows]
        return (asked | progress.noisy) & rows[:, None]

    def step(self, state: State) -> Outcome:
        outcome, memo, rows = self.transition.step(state), state.memo, state.rows
        guess = torch.where(state.noisy, state.proposal, state.tokens)
        asked, ended = state.active.any(1), memo[self.ENDED][rows]
        repeated = ((guess == memo[self.GUESS][rows]) | ~state.free).all(1)
        repeats = torch.where(asked, torch.where(repeated, memo[self.REPEATS][rows] + 1, 0), memo[self.REPEATS][rows])
        ends = asked & (repeats >= self.patience)
        known = torch.where(asked[:, None], guess, memo[self.GUESS][rows])
        for key, values in ((self.GUESS, known), (self.REPEATS, repeats), (self.ENDED, ended | ends)):
            memo[key] = memo[key].index_copy(0, rows, values)
        completes, stays = ends[:, None], ended[:, None]
        filled = completes & state.noisy

        def merge(unchanged: Tensor, complete: Tensor, routed: Tensor) -> Tensor:
            return torch.where(stays, unchanged, torch.where(completes, complete, routed))

        return Outcome(
            tokens=merge(state.tokens, guess, outcome.tokens),
            denoised=merge(state.denoised, state.free, outcome.denoised),
            stored=merge(state.stored, torch.where(filled, state.scores, state.stored), outcome.stored),
            action=merge(
                torch.full_like(outcome.action, Action.KEEP),
                torch.where(filled, Action.PROPOSE, Action.KEEP),
                outcome.action,
            ),
        )

    def finished(self, state: State, outcome: Outcome) -> bool:
        return bool(state.memo[self.ENDED][state.rows].all()) or self.transition.finished(state, outcome)
