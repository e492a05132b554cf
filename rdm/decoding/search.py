"""Search: candidates are replaced by better ones while decoding.

>>> Particles(every=2).due(iteration=4, last=False), Particles(every=2).due(iteration=10, last=True)
(True, False)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rdm.decoding.candidates import CandidateSet, Selection, mean_score
from rdm.decoding.proposal import sample_ids
from rdm.decoding.transition import Outcome, State, Transition
from rdm.describe import Described, with_argument
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require

Replace = Callable[[State, Outcome, bool], Outcome]
"""Replaces the rows of an outcome by better ones, and rearranges the memo of the transition alike; called after every
iteration, with True after the last one."""


class Search(Described, ABC):
    """Replaces the candidates of a source by better ones while decoding."""

    def check(self, transition: Transition, process: DiffusionProcess, samples: Sequence[int]) -> None:
        """Raise a :class:`~rdm.errors.UserError` if the search makes no sense for a decoding: by default never.

        Args:
            transition: the reverse step.
            process: the process of the trained model.
            samples: number of candidates of each length.
        """

    @abstractmethod
    def start(self, selection: Selection, sources: Tensor | None, rows: Tensor, candidates: int, width: int) -> Replace:
        """Begin a decoding.

        Args:
            selection: chooses among the decoded candidates.
            sources: ``[B, S]`` sources, or None if a reward does not read them.
            rows: ``[R]`` indices of the rows at the start.
            candidates: number of rows per source at the start.
            width: number of candidates of one length, which are consecutive rows.
        """


class Particles(Search):
    """Feynman-Kac steering: every few iterations candidates are resampled by ``exp(scale (r - r_before))``.

    The reward ``r`` is that of the candidate's current guess (denoised tokens and proposals) by a
    :class:`~rdm.decoding.candidates.Selection`; ``r_before`` is that of the last resampling, 0 at first. Copies are
    drawn among the candidates of one source with the same free positions, that is of one length. Copies become
    different texts only if decoding is random (``decoding.temperature`` or ``gumbel_scale`` above 0).

    Args:
        every: number of iterations between two resamplings.
        scale: inverse temperature of the reward; 0 resamples without preference.
        reward: scores candidates; None uses ``decoding.selection``, for example a teacher (``rescore=<run>``).
    """

    def __init__(self, every: int = 2, scale: float = 10.0, reward: Selection | None = None) -> None:
        require(every >= 1, f"decoding.search.every must be at least 1, got {every}")
        require(scale >= 0, f"decoding.search.scale must be 0 or greater, got {scale}")
        self.every, self.scale, self.reward = every, scale, reward

    def start(self, selection: Selection, sources: Tensor | None, rows: Tensor, candidates: int, width: int) -> Replace:
        return Resampling(self, selection, sources, candidates, rows)

    def due(self, iteration: int, last: bool) -> bool:
        """Return whether candidates are resampled after this iteration: not after the last, when one is selected."""
        return iteration % self.every == 0 and not last

    def parents(
        self, candidates: CandidateSet, free: Tensor, before: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Return the row ``[B * m]`` that each row is replaced by, and the reward of every row before.

        Args:
            candidates: the current guesses, ``m`` for each of ``B`` sources.
            free: ``[B * m, N]`` bool, the positions to fill.
            before: ``[B * m]`` rewards at the last resampling.
            generator: random state of this decoding.
        """
        assert self.reward is not None  # the sampler hands in its selection
        sources, count = candidates.scores.shape
        rewards = self.reward.scores(candidates).double()
        pattern = free.view(sources, count, -1)
        same = (pattern[:, :, None] == pattern[:, None]).all(-1)  # [B, m, m]
        gain = self.scale * (rewards - before.view(sources, count))
        logits = gain[:, None].expand_as(same).masked_fill(~same | gain.isnan()[:, None], float("-inf"))
        # A row with no finite weight (all rewards of its group are -inf) keeps itself.
        itself = torch.eye(count, dtype=torch.bool, device=free.device) & logits.isneginf().all(2, keepdim=True)
        chosen = sample_ids(logits.masked_fill(itself, 0.0).flatten(0, 1), temperature=1.0, generator=generator)
        first = torch.arange(sources, device=free.device).repeat_interleave(count) * count
        return first + chosen, rewards.flatten()


class Resampling:
    """The state of :class:`Particles` during one decoding: the last reward of every row.

    Args:
        search: how candidates are resampled.
        selection: the reward, unless ``search`` has one.
        sources: ``[B, S]`` sources, or None if the reward does not read them.
        candidates: number of rows per source at the start.
        rows: ``[R]`` indices of the rows at the start.
    """

    def __init__(
        self, search: Particles, selection: Selection, sources: Tensor | None, candidates: int, rows: Tensor
    ) -> None:
        self.search = search if search.reward else with_argument(search, "reward", selection)
        self.sources, self.count = sources, len(rows) // candidates
        self.rewards = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)

    def __call__(self, state: State, outcome: Outcome, last: bool) -> Outcome:
        if not self.search.due(state.iteration, last):
            return outcome
        return take_rows(outcome, self.parents(state, outcome))

    def parents(self, state: State, outcome: Outcome) -> Tensor:
        """Return the row ``[R]`` that each row is replaced by, and rearrange the memo of the transition alike."""
        groups = (self.count, -1)
        guess = torch.where(outcome.denoised | ~state.free, outcome.tokens, state.proposal)
        known = state.free & (outcome.denoised | state.active)
        scores = mean_score(torch.where(outcome.denoised, outcome.stored, state.scores), known).view(groups)
        candidates = CandidateSet(
            sources=guess[: self.count, :0] if self.sources is None else self.sources,
            tokens=guess.unflatten(0, groups),
            text=known.unflatten(0, groups),
            scores=scores,
            length_log_probs=torch.zeros_like(scores),  # equal for the candidates that are compared
        )
        parents, rewards = self.search.parents(candidates, state.free, self.rewards[state.rows], state.generator)
        self.rewards[state.rows] = rewards[parents]
        permutation = torch.arange(len(self.rewards), device=parents.device)
        permutation[state.rows] = state.rows[parents]
        permute_memo(state.memo, permutation)
        return parents


def take_rows(outcome: Outcome, rows: Tensor) -> Outcome:
    """Return the ``rows [R]`` of an outcome."""
    return Outcome(outcome.tokens[rows], outcome.denoised[rows], outcome.stored[rows], outcome.action[rows])


def permute_memo(memo: dict[str, Any], parents: Tensor) -> None:
    """Replace each row of the tensors in a transition's memo, and in memos inside, by that of its parent ``[R]``."""
    for key, value in memo.items():
        if isinstance(value, Tensor):
            memo[key] = value[parents]
        elif isinstance(value, list):
            for inner in value:
                if isinstance(inner, dict):
                    permute_memo(inner, parents)
