"""Semi-autoregressive decoding: the text is filled in blocks from left to right (BD3LM, LLaDA)."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from rdm.decoding.schedule import DecodingSchedule, steps_to_visit
from rdm.decoding.transition import Outcome, Progress, Start, State, Transition
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require

Seen = TypeVar("Seen", bound=Progress)


@dataclass(frozen=True)
class Stage:
    """One iteration of a block: what the transition of the block reads instead of the values of the whole text."""

    block: int
    iteration: int
    iterations: int
    t: int
    s: int
    memo: dict[str, Any]  # of the transition; a new one for every block


class Blocks(Transition):
    """Runs a transition on one block of ``size`` free positions at a time, each with all ``decoding.steps`` iterations.

    Positions of later blocks stay noise and those of earlier blocks stay as they are. The schedule, ``t`` and ``s`` of
    the transition refer to the block; the network reads the step whose noise level is that of the whole row,

        (1 - alpha_t) * (free positions in the block) + (free positions after it),    as a share of all free positions.

    A row is divided by the number of its own free positions, so its text does not depend on the batch. A block that
    needs fewer iterations (see :meth:`~rdm.decoding.transition.Transition.finished`) is followed by the next at once.
    With one block the result is that of the transition alone.

    Args:
        transition: decodes each block.
        size: free positions per block.
        schedule: how many tokens of a block are denoised after each iteration.

    >>> from rdm.decoding.routing import Commit
    >>> from rdm.decoding.schedule import Linear
    >>> Blocks(Commit(), size=2, schedule=Linear()).block_of(torch.tensor([[False, True, True, True]]))
    tensor([[-1,  0,  0,  1]])
    """

    STAGES, INDEX, ENDED = "stages", "block", "ended blocks"

    def __init__(self, transition: Transition, size: int, schedule: DecodingSchedule) -> None:
        require(size >= 1, f"decoding.block must be at least 1, got {size}")
        self.transition, self.size, self.schedule = transition, size, schedule

    def check_noise(self, process: DiffusionProcess) -> None:
        self.transition.check_noise(process)

    def block_of(self, free: Tensor) -> Tensor:
        """Return the block ``[R, N]`` of every free position, -1 elsewhere."""
        return torch.where(free, (free.cumsum(1) - 1) // self.size, -1)

    def plan(self, start: Start) -> list[int]:
        index, stages, memos = self.block_of(start.free), [], []
        plan = [start.process.num_steps, 0]
        for block in range(max(int(index.max()) if index.numel() else 0, 0) + 1):
            inner: dict[str, Any] = {}
            plan = self.transition.plan(replace(start, free=start.free & (index == block), memo=inner))
            last = len(plan) - 1
            memos.append(inner)
            stages += [Stage(block, i + 1, last, plan[i], plan[i + 1], inner) for i in range(last)]
        start.memo.update({self.INDEX: index, self.STAGES: stages, self.ENDED: set(), "memos": memos})
        one_block = stages[-1].block == 0
        return plan if one_block else steps_to_visit(start.process.num_steps, len(stages))

    def skips(self, progress: Progress) -> bool:
        return self._stage(progress).block in progress.memo[self.ENDED] or self.transition.skips(self._inside(progress))

    def active(self, progress: Progress) -> Tensor:
        return self.transition.active(self._inside(progress))

    def network_steps(self, progress: Progress) -> Tensor:
        inside, index = self._inside(progress), progress.memo[self.INDEX][progress.rows]
        steps = self.transition.network_steps(inside)
        length, current = progress.free.sum(1), inside.free.sum(1)
        later = (index > self._stage(progress).block).sum(1)
        alpha = progress.process.schedule.alpha(torch.arange(1, progress.process.num_steps + 1, device=length.device))
        noise = ((1 - alpha[steps - 1]) * current + later) / length.clamp(min=1)
        nearest = 1 + (1 - alpha - noise[:, None]).abs().argmin(1)
        return torch.where(current == length, steps, nearest)

    def step(self, state: State) -> Outcome:
        inside = self._inside(state)
        outcome = self.transition.step(inside)
        return replace(outcome, denoised=torch.where(inside.free, outcome.denoised, state.denoised))

    def finished(self, state: State, outcome: Outcome) -> bool:
        stage, inside = self._stage(state), self._inside(state)
        if not self.transition.finished(inside, replace(outcome, denoised=outcome.denoised & inside.free)):
            return False
        state.memo[self.ENDED].add(stage.block)
        return stage.block == state.memo[self.STAGES][-1].block

    def _stage(self, progress: Progress) -> Stage:
        return progress.memo[self.STAGES][progress.iteration - 1]

    def _inside(self, progress: Seen) -> Seen:
        """Return what the transition reads: the current block as the only free positions."""
        stage = self._stage(progress)
        free = progress.free & (progress.memo[self.INDEX][progress.rows] == stage.block)
        return replace(
            progress,
            iteration=stage.iteration,
            iterations=stage.iterations,
            t=stage.t,
            s=stage.s,
            free=free,
            denoised=progress.denoised & free,
            count=self.schedule.denoised(stage.iteration, stage.iterations, free.sum(1)),
            noise_rate=self.schedule.noise_rate(stage.iteration, stage.iterations),
            memo=stage.memo,
        )
