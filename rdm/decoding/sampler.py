"""The sampling loop: noise in, text out, any number of iterations on a model trained with any number of steps."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from rdm.decoding.base import IteratedDecoding
from rdm.decoding.candidates import BestScore, LengthChoice, Selection, TopLengths, share_out
from rdm.decoding.proposal import Proposal
from rdm.decoding.routing import Outcome, State, Transition
from rdm.decoding.schedule import DecodingSchedule
from rdm.describe import in_words
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require

Denoise = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(tokens [R, N], t [R], positions [R, N] bool) -> logits [P, V]`` at the ``P`` positions, in row-major order."""

Observer = Callable[[State, Outcome], None]
"""Called after every iteration with what the router saw and what came of it."""


@dataclass(frozen=True)
class Canvas:
    """What is to be filled: tokens ``[R, N]`` of which the ``pinned`` ones (prefix, specials, padding) never change.

    The ``candidates`` of one source stand next to each other.
    """

    tokens: Tensor
    pinned: Tensor
    candidates: int = 1


@dataclass(frozen=True)
class Decoded:
    """Filled rows ``[R, N]`` and their scores ``[R]``: the mean over free positions of the score when last denoised.

    ``rows [R]`` says which rows of the canvas these are, if candidates were dropped on the way.
    """

    tokens: Tensor
    scores: Tensor
    rows: Tensor


class Sampler(IteratedDecoding):
    """A decoding strategy: transition, schedule, proposal and length candidates, with no model in it.

    Args:
        name: as it appears in results.
        steps: iterations ``M``; at most the number of steps the model was trained with.
        transition: a router, or the vanilla posterior step.
        schedule: how many tokens should be denoised after each iteration.
        temperature, final_temperature, top_p: see :class:`Proposal`.
        length_candidates: lengths decoded in parallel.
        length_choice: which lengths.
        samples: candidates in all, shared out over the lengths; None is one a length.
        selection: which candidate is returned.
        prune_after: iterations after which only the ``keep_candidates`` of highest score go on; None, and the last
            iteration, drops nothing.
    """

    def __init__(
        self,
        name: str,
        steps: int,
        transition: Transition,
        schedule: DecodingSchedule,
        temperature: float = 0.0,
        final_temperature: float | None = None,
        top_p: float = 1.0,
        length_candidates: int = 5,
        length_choice: LengthChoice | None = None,
        samples: int | None = None,
        selection: Selection | None = None,
        prune_after: int | None = None,
        keep_candidates: int = 2,
    ) -> None:
        require(steps >= 1, f"decoding.steps must be at least 1, got {steps}")
        require(length_candidates >= 1, f"decoding.length_candidates must be at least 1, got {length_candidates}")
        require(samples is None or samples >= 1, f"decoding.samples must be at least 1, got {samples}")
        require(prune_after is None or prune_after >= 1, f"decoding.prune_after must be at least 1, got {prune_after}")
        require(keep_candidates >= 1, f"decoding.keep_candidates must be at least 1, got {keep_candidates}")
        self.name = name
        self.steps = steps
        self.transition = transition
        self.schedule = schedule
        self.proposal = Proposal(temperature, final_temperature, top_p)
        self.length_candidates = length_candidates
        self.length_choice = length_choice or TopLengths()
        self.samples = samples or length_candidates
        self.selection = selection or BestScore()
        self.prune_after, self.keep_candidates = prune_after, keep_candidates

    def describe(self) -> dict[str, Any]:
        return {
            "strategy": self.name,
            "steps": self.steps,
            "transition": in_words(self.transition),
            "schedule": in_words(self.schedule),
            "proposal": in_words(self.proposal),
            "lengths": in_words(self.length_choice),
            "length_candidates": self.length_candidates,
            "candidates": self.samples,
            "selection": in_words(self.selection),
            "pruning": self.prune_after and f"{self.keep_candidates} kept after {self.prune_after} iterations",
        }

    def candidate_lengths(self, logits: Tensor) -> Tensor:
        """The length ``[B, m]`` of every candidate, from the scores ``[B, L]`` of lengths."""
        shares = torch.tensor(share_out(self.samples, self.length_candidates), device=logits.device)
        return self.length_choice(logits, len(shares)).repeat_interleave(shares, dim=1)

    @torch.inference_mode()
    def run(
        self,
        process: DiffusionProcess,
        denoise: Denoise,
        canvas: Canvas,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
    ) -> Decoded:
        """Fill the free positions of ``canvas``, starting from ``q_noise``."""
        free = ~canvas.pinned
        tokens = torch.where(free, process.noise.sample(canvas.tokens, generator), canvas.tokens)
        denoised = torch.zeros_like(free)
        stored = torch.zeros(tokens.shape, device=tokens.device)
        rows = torch.arange(len(tokens), device=tokens.device)
        lengths = free.sum(1)
        memo: dict[str, Any] = {}
        grid = self.transition.plan(process, self.steps, free, memo, generator)
        iterations = len(grid) - 1
        for iteration, (t, s) in enumerate(pairwise(grid), 1):
            positions = free if self.transition.rescores else free & ~denoised
            logits = denoise(tokens, torch.full_like(lengths, t), positions)
            progress = (iteration - 1) / max(iterations - 1, 1)
            proposal, scores = tokens.clone(), stored.clone()
            proposal[positions], scores[positions] = self.proposal(logits, progress, generator)
            state = State(
                process=process,
                iteration=iteration,
                iterations=iterations,
                t=t,
                s=s,
                tokens=tokens,
                free=free,
                denoised=denoised,
                stored=stored,
                proposal=proposal,
                scores=scores,
                positions=positions,
                logits=logits,
                draw=partial(self.proposal.draw, progress=progress, generator=generator),
                count=self.schedule.denoised(iteration, iterations, lengths),
                noise_rate=self.schedule.noise_rate(iteration, iterations),
                rows=rows,
                generator=generator,
                memo=memo,
            )
            outcome = self.transition.step(state)
            if observer is not None:
                observer(state, outcome)
            tokens, denoised, stored = outcome.tokens, outcome.denoised, outcome.stored
            if self.prune_after == iteration < iterations and canvas.candidates > self.keep_candidates:
                best = mean(scores, free).view(-1, canvas.candidates).topk(self.keep_candidates).indices
                kept = (best + torch.arange(len(best), device=best.device)[:, None] * canvas.candidates).flatten()
                rows, tokens, denoised, stored, free = (x[kept] for x in (rows, tokens, denoised, stored, free))
                lengths = lengths[kept]
        return Decoded(tokens=tokens, scores=mean(stored, free), rows=rows)


def mean(scores: Tensor, free: Tensor) -> Tensor:
    """The mean ``[R]`` over the free positions ``[R, N]``."""
    return torch.where(free, scores, 0.0).sum(1) / free.sum(1).clamp(min=1)
