"""The interface of decoding methods: what a reverse step reads, what it decides and what it returns.

One routed step from ``t`` to ``s <= t`` is

    x_s = b (v1 x_t + (1 - v1) u1) + (1 - b) (v2 x0_hat + (1 - v2) u2),        b <- where(b, v1, v2)

with ``u1 ~ q_noise`` and ``u2 ~ q_noise(x_t)``. A :class:`Router` returns one :class:`Action` per token, from which
``v1``, ``v2`` and the new ``b`` follow. To add a decoding method, subclass :class:`Router` and implement ``route``;
override ``active``, ``plan`` and ``finished`` only if the defaults do not fit. A transition around another one
(:class:`~rdm.decoding.blocks.Blocks`, :class:`~rdm.decoding.convergence.Converged`) adds blocks or an early end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

import torch
from torch import Tensor

from rdm.decoding.schedule import steps_to_visit
from rdm.describe import Described
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require
from rdm.masks import true_index


class Action(IntEnum):
    """The decision for one token: keep it, make it noise, or replace it with the proposal.

    ``NOISE`` follows the formula above: a noisy token becomes a sample of ``q_noise(x_t)``, which may leave it as it
    is. ``REDRAW`` always takes a new sample of ``q_noise``.
    """

    KEEP = 0
    NOISE = 1
    PROPOSE = 2
    REDRAW = 3


@dataclass(frozen=True)
class Start:
    """A decoding before its first iteration."""

    process: DiffusionProcess  # of the trained model, with T = process.num_steps
    steps: int  # number of iterations requested by the user (decoding.steps)
    free: Tensor  # [R, N] bool: positions to fill; empty if the plan is only checked
    memo: dict[str, Any] = field(default_factory=dict)  # passed to every Progress and State of this decoding
    generator: torch.Generator | None = None


@dataclass(kw_only=True)
class Progress:
    """An iteration before the network is called: ``R`` rows of ``N`` positions at step ``t``, on the way to ``s``."""

    process: DiffusionProcess
    iteration: int  # 1..iterations
    iterations: int  # number of iterations planned; a transition may finish earlier
    t: int  # the step of the tokens
    s: int  # the step after this iteration, s <= t
    tokens: Tensor  # [R, N] x_t
    free: Tensor  # [R, N] bool: positions to fill; all others are pinned
    denoised: Tensor  # [R, N] bool: b
    stored: Tensor  # [R, N] score of each token when it was last denoised; 0 before
    count: Tensor  # [R] number of denoised tokens after this iteration according to the schedule: k
    noise_rate: float  # share of noisy tokens after this iteration according to the schedule
    rows: Tensor  # [R] index of each row in the canvas, as candidates may have been pruned
    generator: torch.Generator | None = None
    memo: dict[str, Any] = field(default_factory=dict)  # private to the transition; tensors have all rows of the canvas

    @property
    def noisy(self) -> Tensor:
        """``[R, N]`` bool: free positions that are not denoised."""
        return self.free & ~self.denoised

    def step_tensors(self) -> tuple[Tensor, Tensor]:
        """``t`` and ``s`` as tensors ``[R]``, as :class:`DiffusionProcess` expects them."""
        like = self.tokens[:, 0]
        return torch.full_like(like, self.t), torch.full_like(like, self.s)


@dataclass(kw_only=True)
class State(Progress):
    """An iteration after the network was called at the ``P`` active positions."""

    active: Tensor  # [R, N] bool: the positions the network was called at, P in total
    logits: Tensor  # [P, V] its output there, in row-major order; for methods that need the whole distribution
    proposal: Tensor  # [R, N] x0_hat; the current token at inactive positions
    scores: Tensor  # [R, N] log-probability of the proposal; the stored score at inactive positions
    sample: Callable[[Tensor], Tensor]  # logits [P, V] -> ids [P] with temperature and nucleus of this iteration

    @property
    def scored(self) -> Tensor:
        """``[R, N]`` bool: free positions with a score, either from this iteration or stored."""
        return self.free & (self.active | self.denoised)

    @property
    def active_index(self) -> Tensor:
        """``[P]`` the active positions as indices into flattened ``[R * N]`` tensors, in the order of ``logits``.

        Their number is known from ``logits``, so there is no device synchronisation.
        """
        return true_index(self.active, len(self.logits))


@dataclass(frozen=True)
class Outcome:
    """The result of one reverse step: tokens ``x_s``, the new ``b``, stored scores and actions, each ``[R, N]``."""

    tokens: Tensor
    denoised: Tensor
    stored: Tensor
    action: Tensor


class Transition(Described, ABC):
    """One reverse step, and which steps are visited, where the network is called and when decoding ends.

    The sampler calls ``plan`` once, then for every pair ``(t, s)`` of the plan ``skips``, ``active``, the network with
    ``network_steps``, ``step`` and ``finished``.
    """

    any_number_of_steps: ClassVar[bool] = False
    """Whether more iterations than the ``T`` steps of training make sense; some steps are then visited repeatedly."""
    left_to_right: ClassVar[bool] = False
    """Whether the network must predict a denoised token from the tokens before it, without seeing later ones."""

    def check_noise(self, process: DiffusionProcess) -> None:
        """Raise a :class:`~rdm.errors.UserError` if this transition makes no sense for the noise: by default never."""

    def plan(self, start: Start) -> list[int]:
        """Return the steps to visit, from ``T`` (or below) down to 0, or raise if ``start.steps`` is not possible.

        By default ``steps`` strides that differ by at most one, at most ``T`` of them except with
        ``any_number_of_steps``. A plan may contain a step more than once; the pair ``s == t`` is then legal and the
        transition has to support it.
        """
        steps, trained = start.steps, start.process.num_steps
        require(
            self.any_number_of_steps or steps <= trained,
            f"decoding.steps={steps} exceeds diffusion.num_steps={trained} "
            "(the number of steps this model was trained with)",
        )
        return steps_to_visit(trained, steps)

    def skips(self, progress: Progress) -> bool:
        """Return whether this iteration is left out, without a network call: by default never."""
        return False

    def active(self, progress: Progress) -> Tensor:
        """Return the positions ``[R, N]`` (bool) at which the network is called: by default all free ones."""
        return progress.free

    def network_steps(self, progress: Progress) -> Tensor:
        """Return the step ``[R]`` that the network reads in each row: by default ``t``."""
        return torch.full_like(progress.tokens[:, 0], progress.t)

    @abstractmethod
    def step(self, state: State) -> Outcome:
        """Return the tokens at step ``state.s``."""

    def finished(self, state: State, outcome: Outcome) -> bool:
        """Return whether decoding ends after this iteration although the plan has more: by default never."""
        return False


class Router(Transition):
    """A transition that chooses one action per token.

    Args:
        sent_back_interpolates: draw a token that is sent back to noise from ``q_noise(x_t)`` (the official code)
            instead of ``q_noise`` (the paper). The two differ only if noise can look like text.

    Example: a router that denoises everything in one iteration.

        >>> class Eager(Router):
        ...     def route(self, state):
        ...         return torch.full_like(state.tokens, Action.PROPOSE)
        >>> Eager().describe()
        {'class': 'Eager', 'sent_back_interpolates': False}
    """

    def __init__(self, sent_back_interpolates: bool = False) -> None:
        self.sent_back_interpolates = sent_back_interpolates

    @abstractmethod
    def route(self, state: State) -> Tensor:
        """Return the :class:`Action` of every token, ``[R, N]``; values at pinned positions are ignored."""

    def step(self, state: State) -> Outcome:
        action = torch.where(state.free, self.route(state), Action.KEEP)
        t, s = state.step_tensors()
        remaining = state.process.renoise(state.tokens, t, s, state.generator)
        fresh = sent_back = state.process.noise.sample(state.tokens, state.generator)
        if self.sent_back_interpolates:
            looks_like_noise = state.process.noise.prob(state.tokens) > 0
            sent_back = torch.where(looks_like_noise, remaining, fresh)
        noise = torch.where(state.denoised, sent_back, remaining)
        # Values, because torch.compile takes the comparison of a tensor with an enumeration for a constant.
        redrawn, taken = action == Action.REDRAW.value, action == Action.PROPOSE.value
        noise, noised = torch.where(redrawn, fresh, noise), (action == Action.NOISE.value) | redrawn
        return Outcome(
            tokens=torch.where(taken, state.proposal, torch.where(noised, noise, state.tokens)),
            denoised=taken | (state.denoised & ~noised),
            stored=torch.where(taken, state.scores, state.stored),
            action=action,
        )


def actions(state: State, v1: Tensor, v2: Tensor) -> Tensor:
    """Return the actions for ``v1`` (a denoised token stays) and ``v2`` (a noisy token is denoised), ``[R, N]``."""
    denoised = torch.where(v1, Action.KEEP, Action.NOISE)
    noisy = torch.where(v2, Action.PROPOSE, Action.NOISE)
    return torch.where(state.denoised, denoised, noisy)


def top_k(scores: Tensor, k: Tensor, among: Tensor) -> Tensor:
    """Return the ``k [R]`` positions of highest score per row within ``among``: exactly ``min(k, available)``.

    Positions are compared by rank and ties are broken in favour of the earlier one, so equal, infinite and NaN scores
    do not change the number of positions.

        >>> top_k(torch.tensor([[0.1, 0.7, 0.7]]), k=torch.tensor([1]), among=torch.ones(1, 3, dtype=torch.bool))
        tensor([[False,  True, False]])
    """
    order = scores.masked_fill(scores.isnan(), float("-inf")).argsort(dim=1, descending=True, stable=True)
    candidates_first = (~among.gather(1, order)).long().argsort(dim=1, stable=True)
    rank = order.gather(1, candidates_first).argsort(dim=1)
    return (rank < k[:, None]) & among


def probability(name: str, value: float) -> float:
    """Return ``value``, the option ``name`` of a transition, if it lies in [0, 1]."""
    require(0 <= value <= 1, f"decoding.transition.{name} must be a probability in [0, 1], got {value}")
    return value


def require_text_noise(process: DiffusionProcess, instead: str) -> None:
    """Raise unless the noise produces ordinary ids; ``instead`` says which decoding to use for mask noise."""
    noise = process.noise
    outside = float(noise.probs[~noise.learnable].sum())
    require(outside < 1, f"decoding: this transition needs noise that looks like text, not masks; use {instead}")


def asks_again(transition: Transition, process: DiffusionProcess) -> bool:
    """Whether ``transition`` calls the network at a token that is denoised already, tried on a row with one.

    >>> from rdm.decoding.routing import Commit, Unconditional
    >>> from rdm.diffusion.noise import Absorbing
    >>> from rdm.diffusion.schedule import Linear
    >>> from rdm.vocab import Vocab
    >>> process = DiffusionProcess(Linear(num_steps=4), Absorbing(Vocab(size=9)))
    >>> asks_again(Commit(), process), asks_again(Unconditional(), process)
    (False, True)
    """
    both = torch.ones(1, 2, dtype=torch.bool)
    denoised = torch.tensor([[True, False]])
    memo: dict[str, Any] = {}
    transition.plan(Start(process, 1, both, memo, torch.Generator()))
    progress = Progress(
        process=process,
        iteration=1,
        iterations=2,
        t=process.num_steps,
        s=process.num_steps - 1,
        tokens=process.noise.sample(torch.zeros(1, 2, dtype=torch.long)),
        free=both,
        denoised=denoised,
        stored=torch.zeros(1, 2),
        count=torch.tensor([2]),
        noise_rate=0.5,
        rows=torch.tensor([0]),
        memo=memo,
    )
    return bool((transition.active(progress) & denoised).any())
