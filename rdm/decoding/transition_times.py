"""DNDM (Chen et al., 2024): every position has a transition time drawn before decoding; other steps are skipped.

The transition time ``tau_n`` of position ``n`` is the step at which it is denoised. It follows the noise schedule,

    P(tau = t) = (alpha_{t-1} - alpha_t) / (1 - alpha_T),

or ``ceil(T * Beta(a, b))``. With fewer iterations than ``T``, times are rounded up to the steps of the even plan. Only
steps that are the transition time of a position are visited, so a row costs at most ``min(steps, N)`` network calls.

>>> from rdm.decoding.transition_times import DNDM
>>> DNDM(a=5, b=3).describe()
{'class': 'DNDM', 'a': 5.0, 'b': 3.0}
"""

import numpy as np
import torch
from torch import Tensor

from rdm.decoding.scores import Confidence, Score
from rdm.decoding.transition import Action, Outcome, Progress, Router, Start, State, actions, top_k
from rdm.errors import require

TIMES = "transition_times"
"""Key of the transition times ``[R, N]`` in the memo."""


class TransitionTimes(Router):
    """Base class of the DNDM routers: draws the transition times and visits only these steps.

    Args:
        a, b: parameters of the Beta distribution; None draws from the noise schedule.
    """

    def __init__(self, a: float | None = None, b: float | None = None) -> None:
        super().__init__()
        require((a is None) == (b is None), "decoding.transition.a and b: set both (Beta) or none (noise schedule)")
        positive = all(value is None or value > 0 for value in (a, b))
        require(positive, f"decoding.transition.a and b must be greater than 0, got {a} and {b}")
        self.a, self.b = a, b

    def plan(self, start: Start) -> list[int]:
        """Draw the transition times and return the distinct ones of the free positions in descending order, then 0."""
        even = torch.tensor(super().plan(start)[::-1], device=start.free.device)
        times = even[torch.searchsorted(even, self._sample_times(start))]
        start.memo[TIMES] = times
        return [*sorted(set(times[start.free].tolist()) or {start.process.num_steps}, reverse=True), 0]

    def due(self, progress: Progress) -> Tensor:
        """Return the positions ``[R, N]`` (bool) whose transition time is reached in this iteration or was before."""
        return progress.memo[TIMES][progress.rows] > progress.s

    def _sample_times(self, start: Start) -> Tensor:
        """Draw one time in 1..T per position, ``[R, N]``."""
        process, free, generator = start.process, start.free, start.generator
        if self.a is not None and self.b is not None:
            # torch cannot draw from a Beta distribution with a generator.
            seed = int(torch.randint(2**62, (), generator=generator, device=free.device))
            shares = torch.from_numpy(np.random.default_rng(seed).beta(self.a, self.b, free.shape)).to(free.device)
            return (shares * process.num_steps).ceil().long().clamp(1, process.num_steps)
        alpha = process.schedule.alpha(torch.arange(1, process.num_steps + 1, device=free.device))
        uniform = torch.rand(free.shape, dtype=torch.float64, device=free.device, generator=generator)
        cumulative = (1 - alpha) / (1 - alpha[-1])
        return 1 + torch.searchsorted(cumulative, uniform, right=True).clamp(max=process.num_steps - 1)


class DNDM(TransitionTimes):
    """A position is denoised at its transition time and never sent back; noise keeps its first sample until then.

    The network is called only at the positions that are denoised in this iteration.
    """

    def active(self, progress: Progress) -> Tensor:
        return progress.noisy & self.due(progress)

    def route(self, state: State) -> Tensor:
        return torch.where(self.active(state), Action.PROPOSE, Action.KEEP)


class DNDMTopK(TransitionTimes):
    """DNDM-k: ``uncond`` top-k routing with ``k`` the number of transition times reached; all scores are fresh.

    A row in which no transition time is reached is left unchanged and costs no network call.

    Args:
        a, b: see :class:`TransitionTimes`.
        score: what tokens are ranked by (config group ``ranking``); None: :class:`~rdm.decoding.scores.Confidence`.
    """

    def __init__(self, a: float | None = None, b: float | None = None, score: Score | None = None) -> None:
        super().__init__(a, b)
        self.score = score or Confidence()

    def active(self, progress: Progress) -> Tensor:
        missing = self._count(progress) > progress.denoised.sum(1)
        return progress.free & missing[:, None]

    def route(self, state: State) -> Tensor:
        chosen = top_k(self.score.now(state), self._count(state), state.free)
        return torch.where(state.active, actions(state, v1=chosen, v2=chosen), Action.KEEP)

    def step(self, state: State) -> Outcome:
        outcome = super().step(state)
        self.score.remember(state, outcome)
        return outcome

    def _count(self, progress: Progress) -> Tensor:
        return (self.due(progress) & progress.free).sum(1)
