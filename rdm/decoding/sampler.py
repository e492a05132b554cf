"""The sampling loop of discrete diffusion: from noise to text in any number of iterations."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from rdm.decoding.base import IteratedDecoding
from rdm.decoding.blocks import Blocks
from rdm.decoding.candidates import (
    BestScore,
    LengthChoice,
    Selection,
    TopLengths,
    mean_score,
    samples_per_length,
)
from rdm.decoding.convergence import Converged
from rdm.decoding.guidance import Denoise, Guided
from rdm.decoding.proposal import Proposal
from rdm.decoding.schedule import DecodingSchedule
from rdm.decoding.search import Search
from rdm.decoding.transition import Outcome, Progress, Start, State, Transition
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require

Observer = Callable[[State, Outcome], None]
"""Called after every iteration with the input and the result of the transition."""


@dataclass(frozen=True)
class Canvas:
    """The rows to fill: tokens ``[R, N]``, of which ``pinned`` ones (prefix, special symbols, padding) never change.

    The ``candidates`` of one source are consecutive rows. ``sources [B, S]`` are needed by a reward that reads them.
    """

    tokens: Tensor
    pinned: Tensor
    candidates: int = 1
    sources: Tensor | None = None


@dataclass(frozen=True)
class Decoded:
    """The filled rows; ``R`` is smaller than in the canvas if candidates were pruned."""

    tokens: Tensor  # [R, N]
    scores: Tensor  # [R] mean over free positions of the score when last denoised
    rows: Tensor  # [R] index of each row in the canvas
    calls: Tensor  # network calls at a position of each row of the canvas, also of pruned ones; two with guidance


class Sampler(IteratedDecoding):
    """A decoding strategy for discrete diffusion, without a model.

    Args:
        name: name of the strategy in result rows.
        steps: maximum number of iterations ``M``; the transition determines how many are legal.
        transition: a router, or the vanilla posterior step.
        schedule: how many tokens are denoised after each iteration.
        temperature, final_temperature, top_p: see :class:`~rdm.decoding.proposal.Proposal`.
        length_candidates: number of lengths decoded in parallel.
        length_choice: which lengths; by default the most likely ones.
        samples: total number of candidates, distributed over the lengths; None decodes one per length.
        selection: which candidate is returned; by default the one with the highest score.
        prune_after: iteration after which only the ``keep_candidates`` with the highest score are decoded further;
            None, or the last iteration, prunes nothing.
        block: decode blocks of this many tokens from left to right, each with ``steps`` iterations (see
            :class:`~rdm.decoding.blocks.Blocks`); None decodes all at once.
        max_tokens: number of tokens of open-ended text; None leaves it to the system. More than fit into the window
            of the model need ``block``.
        block_cache: keep keys and values outside the current block (approximate, see ``rdm.systems.cached``).
        token_cache: recompute tokens that do not change only in every ``token_cache``-th call (approximate, see
            ``rdm.systems.cached``); None recomputes all in every call.
        stop_on_convergence: end a row when the network's guess was the same this many times in a row (see
            :class:`~rdm.decoding.convergence.Converged`); None never does.
        guidance: scale of classifier-free guidance (see :class:`~rdm.decoding.guidance.Guided`); 1 is none.
        search: replaces candidates by better ones while decoding; None does not.

    Example: a process with four steps and a "network" that is certain of token 5.

        >>> import torch
        >>> from rdm.decoding.routing import Commit
        >>> from rdm.decoding.sampler import Canvas, Sampler
        >>> from rdm.decoding.schedule import Linear
        >>> from rdm.diffusion import noise, process, schedule
        >>> from rdm.vocab import Vocab
        >>> absorbing = process.DiffusionProcess(schedule.Linear(num_steps=4), noise.Absorbing(Vocab(size=8)))
        >>> def denoise(tokens, t, active):
        ...     return torch.eye(8)[5].expand(int(active.sum()), -1)
        >>> canvas = Canvas(torch.tensor([[2, 1, 1, 3]]), pinned=torch.tensor([[True, False, False, True]]))
        >>> decoded = Sampler("commit", 2, Commit(), Linear()).run(absorbing, denoise, canvas)
        >>> decoded.tokens, decoded.calls
        (tensor([[2, 5, 5, 3]]), tensor([2]))
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
        block: int | None = None,
        block_cache: bool = False,
        token_cache: int | None = None,
        stop_on_convergence: int | None = None,
        guidance: float = 1.0,
        search: Search | None = None,
        max_tokens: int | None = None,
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
        by_itself = stop_on_convergence is None or not transition.left_to_right
        require(by_itself, f"decoding.stop_on_convergence: decoding={name} ends by itself; leave it out")
        self.proposal = Proposal(temperature, final_temperature, top_p)
        self.length_candidates = length_candidates
        self.length_choice = length_choice or TopLengths()
        self.samples = samples or length_candidates
        self.selection = selection or BestScore()
        self.prune_after, self.keep_candidates = prune_after, keep_candidates
        require(guidance >= 0, f"decoding.guidance must be 0 or greater, got {guidance}")
        require(block is None or prune_after is None, "decoding.prune_after and decoding.block: use only one of them")
        require(
            search is None or self.samples > 1, "decoding.search resamples candidates: set decoding.samples above 1"
        )
        require(search is None or prune_after is None, "decoding.prune_after and decoding.search: use only one of them")
        require(block is not None or not block_cache, "decoding.block_cache=true needs decoding.block")
        require(token_cache is None or token_cache >= 1, f"decoding.token_cache must be at least 1, got {token_cache}")
        require(token_cache is None or not block_cache, "decoding.token_cache and block_cache: use only one of them")
        if token_cache is not None or block_cache:  # the keys and values of a row belong to that row
            fixed = prune_after is None and search is None
            require(fixed, "decoding: a cache cannot be combined with prune_after or search")
        self.token_cache = token_cache
        self.block, self.block_cache, self.stop_on_convergence = block, block_cache, stop_on_convergence
        require(max_tokens is None or max_tokens >= 1, f"decoding.max_tokens must be at least 1, got {max_tokens}")
        self.guidance, self.search, self.max_tokens = guidance, search, max_tokens
        self.reverse_process  # noqa: B018  (checks the options of the wrappers)

    @property
    def reverse_process(self) -> Transition:
        """The transition, with an early end of converged rows inside blocks if these are configured."""
        transition = self.transition
        if self.stop_on_convergence is not None:
            transition = Converged(transition, self.stop_on_convergence)
        return transition if self.block is None else Blocks(transition, self.block, self.schedule)

    @property
    def candidates(self) -> int:
        return self.samples

    def candidate_lengths(self, logits: Tensor) -> Tensor:
        """Return the length ``[B, m]`` of every candidate, from the logits ``[B, L]`` of the length head."""
        repeats = torch.tensor(samples_per_length(self.samples, self.length_candidates), device=logits.device)
        return self.length_choice(logits, len(repeats)).repeat_interleave(repeats, dim=1)

    def check(self, process: DiffusionProcess) -> None:
        """Raise a :class:`~rdm.errors.UserError` if the transition does not fit the noise or steps of ``process``."""
        nothing, transition = torch.zeros(0, 0, dtype=torch.bool), self.reverse_process
        transition.check_noise(process)
        if self.search is not None:
            self.search.check(transition, process, samples_per_length(self.samples, self.length_candidates))
        # With a generator of its own: the global random state stays as it is.
        transition.plan(Start(process, self.steps, nothing, generator=torch.Generator()))

    @torch.inference_mode()
    def run(
        self,
        process: DiffusionProcess,
        denoise: Denoise,
        canvas: Canvas,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
        unconditional: Denoise | None = None,
    ) -> Decoded:
        """Fill the free positions of ``canvas``, starting from a sample of ``q_noise``.

        Args:
            process: the process of the trained model.
            denoise: the network, bound to its sources.
            canvas: the rows to fill.
            generator: random state of this decoding.
            observer: called after every iteration.
            unconditional: the network with empty sources, for ``guidance``.
        """
        transition, calls_each = self.reverse_process, 1
        if self.guidance != 1:
            assert unconditional is not None  # System.check refuses guidance for systems that have none
            denoise, calls_each = Guided(denoise, unconditional, self.guidance), 2
        free = ~canvas.pinned
        tokens = torch.where(free, process.noise.sample(canvas.tokens, generator), canvas.tokens)
        denoised = torch.zeros_like(free)
        stored = torch.zeros(tokens.shape, device=tokens.device)
        rows = torch.arange(len(tokens), device=tokens.device)
        lengths, calls = free.sum(1), torch.zeros_like(rows)
        memo: dict[str, Any] = {}
        plan = transition.plan(Start(process, self.steps, free, memo, generator))
        search = None
        if self.search is not None:
            width = max(self.samples // self.length_candidates, 1)
            search = self.search.start(self.selection, canvas.sources, rows, canvas.candidates, width)
        iterations = len(plan) - 1
        for iteration, (t, s) in enumerate(pairwise(plan), 1):
            progress = Progress(
                process=process,
                iteration=iteration,
                iterations=iterations,
                t=t,
                s=s,
                tokens=tokens,
                free=free,
                denoised=denoised,
                stored=stored,
                count=self.schedule.denoised(iteration, iterations, lengths),
                noise_rate=self.schedule.noise_rate(iteration, iterations),
                rows=rows,
                generator=generator,
                memo=memo,
            )
            if transition.skips(progress):
                continue
            active = transition.active(progress)
            steps = process.network_steps(transition.network_steps(progress), free & ~denoised)
            logits = denoise(tokens, steps, active)
            calls = calls.index_add(0, rows, calls_each * active.any(1))
            elapsed = (iteration - 1) / max(iterations - 1, 1)
            proposed, scored = self.proposal(logits, elapsed, generator)
            # Unlike an assignment to a mask, this needs no device synchronisation.
            proposal, scores = tokens.masked_scatter(active, proposed), stored.masked_scatter(active, scored)
            state = State(
                **vars(progress),
                active=active,
                logits=logits,
                proposal=proposal,
                scores=scores,
                sample=partial(self.proposal.sample, elapsed=elapsed, generator=generator),
            )
            outcome = transition.step(state)
            finished = transition.finished(state, outcome)
            if search is not None:
                outcome = search(state, outcome, finished or iteration == iterations)
                finished = finished and transition.finished(state, outcome)
            if observer is not None:
                observer(state, outcome)
            tokens, denoised, stored = outcome.tokens, outcome.denoised, outcome.stored
            if finished:
                break
            if self.prune_after == iteration < iterations and canvas.candidates > self.keep_candidates:
                kept = best_candidates(state, canvas.candidates, self.keep_candidates)
                rows, tokens, denoised, stored, free = (x[kept] for x in (rows, tokens, denoised, stored, free))
                lengths = lengths[kept]
        return Decoded(tokens=tokens, scores=mean_score(stored, free), rows=rows, calls=calls)


def best_candidates(state: State, candidates: int, keep: int) -> Tensor:
    """Return the rows of the ``keep`` candidates with the highest mean score of each source; unscored rows last."""
    means = mean_score(state.scores, state.scored).masked_fill(~state.scored.any(1), float("-inf"))
    best = means.view(-1, candidates).topk(keep).indices
    return (best + torch.arange(len(best), device=best.device)[:, None] * candidates).flatten()
