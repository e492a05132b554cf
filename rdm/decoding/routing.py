"""Routers: who is denoised, who stays, who goes back to noise.

The transition from step ``t`` to ``s`` is always

    x_s = b (v1 x_t + (1 - v1) u1) + (1 - b) (v2 x0_hat + (1 - v2) u2),        b <- where(b, v1, v2)

with ``u1 ~ q_noise`` and ``u2 ~ q_noise(x_t)``. A :class:`Router` returns one :class:`Action` a token, from which
``v1``, ``v2`` and the new ``b`` follow. To add a decoding method, subclass it and implement ``route``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from rdm.cross_entropy import rows_at_once
from rdm.decoding.schedule import steps_to_visit
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require


class Action(IntEnum):
    """What happens to a token: it stays, becomes (or remains) noise, or takes the proposal."""

    KEEP = 0
    NOISE = 1
    PROPOSE = 2


@dataclass
class State:
    """Everything a router may look at in one iteration; ``R`` rows of ``N`` positions."""

    process: DiffusionProcess
    iteration: int  # 1..iterations
    iterations: int
    t: int  # the step the tokens are at
    s: int  # the step they go to
    tokens: Tensor  # [R, N] x_t
    free: Tensor  # [R, N] bool: positions to fill; all others are pinned
    denoised: Tensor  # [R, N] bool: b
    stored: Tensor  # [R, N] score each token had when it was last denoised; 0 before
    proposal: Tensor  # [R, N] x0_hat
    scores: Tensor  # [R, N] log-probability of the proposal now
    positions: Tensor  # [R, N] bool: where the network was asked, P of them
    logits: Tensor  # [P, V] its answer there, for methods that want the whole distribution
    draw: Callable[[Tensor], Tensor]  # an id a row of logits, at the temperature and nucleus of this iteration
    count: Tensor  # [R] how many tokens should be denoised after this iteration: k
    noise_rate: float  # share the schedule leaves noisy after this iteration
    rows: Tensor  # [R] which rows of the canvas these are: candidates may have been dropped
    generator: torch.Generator | None = None
    memo: dict[str, Any] = field(default_factory=dict)  # a router's own, for all rows of the canvas

    def steps(self) -> tuple[Tensor, Tensor]:
        """``t`` and ``s`` as tensors ``[R]``, the form the process takes."""
        like = self.tokens[:, 0]
        return torch.full_like(like, self.t), torch.full_like(like, self.s)


@dataclass(frozen=True)
class Outcome:
    """What one iteration leaves behind: tokens ``x_s``, the new ``b``, stored scores and actions, ``[R, N]``."""

    tokens: Tensor
    denoised: Tensor
    stored: Tensor
    action: Tensor


class Transition(ABC):
    """One reverse step. ``rescores`` says whether denoised tokens need a fresh score from the network."""

    rescores = True

    def plan(
        self,
        process: DiffusionProcess,
        iterations: int,
        free: Tensor,
        memo: dict[str, Any],
        generator: torch.Generator | None,
    ) -> list[int]:
        """The steps to visit, from ``T`` down to 0: by default ``iterations`` strides that differ by at most one.

        ``memo`` is the one that comes back in every :class:`State` of this decoding.
        """
        return steps_to_visit(process.num_steps, iterations)

    @abstractmethod
    def step(self, state: State) -> Outcome: ...


class Router(Transition):
    """The routed transition. ``sent_back_interpolates`` draws a token that goes back to noise from ``q_noise(x_t)``
    (the official code) instead of ``q_noise`` (the paper); the two differ only where noise looks like text."""

    def __init__(self, sent_back_interpolates: bool = False) -> None:
        self.sent_back_interpolates = sent_back_interpolates

    @abstractmethod
    def route(self, state: State) -> Tensor:
        """The :class:`Action` of every token, ``[R, N]``; what it says of pinned positions is ignored."""

    def step(self, state: State) -> Outcome:
        action = torch.where(state.free, self.route(state), Action.KEEP)
        t, s = state.steps()
        remains = state.process.renoise(state.tokens, t, s, state.generator)
        sent_back = state.process.noise.sample(state.tokens, state.generator)
        if self.sent_back_interpolates:
            looks_like_noise = state.process.noise.prob(state.tokens) > 0
            sent_back = torch.where(looks_like_noise, remains, sent_back)
        noise = torch.where(state.denoised, sent_back, remains)
        taken, noised = action == Action.PROPOSE, action == Action.NOISE
        return Outcome(
            tokens=torch.where(taken, state.proposal, torch.where(noised, noise, state.tokens)),
            denoised=taken | (state.denoised & ~noised),
            stored=torch.where(taken, state.scores, state.stored),
            action=action,
        )


def actions(state: State, v1: Tensor, v2: Tensor) -> Tensor:
    """Actions from ``v1`` (a denoised token stays) and ``v2`` (a noisy token is denoised)."""
    denoised = torch.where(v1, Action.KEEP, Action.NOISE)
    noisy = torch.where(v2, Action.PROPOSE, Action.NOISE)
    return torch.where(state.denoised, denoised, noisy)


def top_k(scores: Tensor, k: Tensor, among: Tensor) -> Tensor:
    """The ``k [R]`` positions of highest score in each row, of those in ``among``: exactly ``min(k, available)``.

    By rank, ties in favour of the earlier position, so that equal, infinite or not-a-number scores change nothing.
    """
    order = scores.masked_fill(scores.isnan(), float("-inf")).argsort(dim=1, descending=True, stable=True)
    candidates_first = (~among.gather(1, order)).long().argsort(dim=1, stable=True)
    rank = order.gather(1, candidates_first).argsort(dim=1)
    return (rank < k[:, None]) & among


class Ancestral(Router):
    """Vanilla decoding: ``v1 ~ Bernoulli(lambda1)``, ``v2 ~ Bernoulli(lambda2)``, alike for all tokens.

    ``keep_denoised`` fixes ``v1 = 1``, as the official code does for RDM-multinomial.
    """

    rescores = False

    def __init__(self, keep_denoised: bool = False, sent_back_interpolates: bool = False) -> None:
        super().__init__(sent_back_interpolates)
        self.keep_denoised = keep_denoised

    def route(self, state: State) -> Tensor:
        t, s = state.steps()
        lambda1 = state.process.lambda1(state.tokens, t, s)
        if self.keep_denoised:
            lambda1 = torch.ones_like(lambda1)
        lambda2 = state.process.lambda2(t, s).expand_as(lambda1)
        uniform = torch.rand(lambda1.shape, dtype=torch.float64, device=lambda1.device, generator=state.generator)
        return actions(state, v1=uniform < lambda1, v2=uniform < lambda2)


class TopK(Router):
    """Adaptive routing (Eq. 11): the ``k`` tokens of highest score are denoised, the others are noise.

    Args:
        gumbel_scale: 0 ranks by score; above it, Gumbel noise of ``gumbel_scale * noise rate`` is added before ranking.
    """

    def __init__(self, gumbel_scale: float = 0.0, sent_back_interpolates: bool = False) -> None:
        super().__init__(sent_back_interpolates)
        require(gumbel_scale >= 0, f"gumbel_scale must be 0 or above, got {gumbel_scale}")
        self.gumbel_scale = gumbel_scale

    def scores(self, state: State) -> Tensor:
        """What the tokens are ranked by."""
        if self.gumbel_scale == 0:
            return state.scores
        exponential = torch.empty_like(state.scores, dtype=torch.float64).exponential_(generator=state.generator)
        return state.scores - self.gumbel_scale * state.noise_rate * exponential.log()


class Unconditional(TopK):
    """``uncond``: ``v1 = v2 = (n in top-k)``; a denoised token that falls out of the top-k goes back to noise."""

    def route(self, state: State) -> Tensor:
        chosen = top_k(self.scores(state), state.count, state.free)
        return actions(state, v1=chosen, v2=chosen)


class MaskPredict(Unconditional):
    """As ``uncond``, but a denoised token is ranked by the score *stored* when it was denoised (CMLM)."""

    rescores = False

    def scores(self, state: State) -> Tensor:
        return torch.where(state.denoised, state.stored, super().scores(state))


class Conditional(TopK):
    """``cond``: a denoised token goes back only if it is outside the top-k, *and* its score fell below the stored one,
    *and* the network still proposes the same token (the official code's reading of the appendix)."""

    def route(self, state: State) -> Tensor:
        chosen = top_k(self.scores(state), state.count, state.free)
        doubted = ~chosen & (state.scores < state.stored) & (state.proposal == state.tokens)
        return actions(state, v1=~doubted, v2=chosen)


class Commit(TopK):
    """``commit``: a denoised token never goes back; the best noisy ones join until ``k`` are denoised (LLaDA)."""

    rescores = False

    def route(self, state: State) -> Tensor:
        missing = (state.count - (state.denoised & state.free).sum(1)).clamp(min=0)
        chosen = top_k(self.scores(state), missing, state.free & ~state.denoised)
        return actions(state, v1=torch.ones_like(chosen), v2=chosen)


class PosteriorStep(Transition):
    """The vanilla posterior ``p(x_s | x_t) = q(x_s | x_t, f(x_t))`` of the appendix: argmax or a draw.

    Not a router. For uniform noise over a large vocabulary it decides everything in the first iteration and then stays
    where it is, as the paper observes.
    """

    def step(self, state: State) -> Outcome:
        at, size = state.positions, rows_at_once(state.logits)
        parts = []
        for logits, x_t in zip(state.logits.split(size), state.tokens[at].split(size), strict=True):
            log_probs, steps = logits.float().log_softmax(-1), torch.ones_like(x_t)
            ids = state.draw(state.process.posterior_log_probs(x_t, log_probs, state.t * steps, state.s * steps))
            parts.append((ids, log_probs.gather(1, ids[:, None]).squeeze(1)))
        chosen, scores = (torch.cat(side) for side in zip(*parts, strict=True))
        tokens, stored = state.tokens.clone(), state.stored.clone()
        tokens[at] = chosen
        stored[at] = scores
        return Outcome(
            tokens=tokens,
            denoised=((tokens == state.proposal) | (state.s == 0)) & state.free,
            stored=stored,
            action=torch.where(tokens == state.tokens, Action.KEEP, Action.PROPOSE),
        )
