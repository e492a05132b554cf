"""Routers that denoise as many tokens per iteration as the model is certain of, and stop when none is noisy.

``decoding.steps`` is the maximum number of iterations: the last one denoises everything that is left.

>>> from rdm.decoding.adaptive import Threshold
>>> Threshold(0.7).describe()
{'class': 'Threshold', 'threshold': 0.7}
"""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import rows_at_once
from rdm.decoding.transition import (
    Action,
    Outcome,
    Progress,
    Router,
    State,
    actions,
    probability,
    require_text_noise,
    top_k,
)
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require


class Adaptive(Router):
    """Base class: denoised tokens stay, and decoding ends when all free positions are denoised."""

    def active(self, progress: Progress) -> Tensor:
        return progress.noisy

    @abstractmethod
    def accepted(self, state: State) -> Tensor:
        """Return the noisy positions to denoise, ``[R, N]`` bool: at least one in each row that has any."""

    def route(self, state: State) -> Tensor:
        denoise = self.accepted(state) if state.s > 0 else state.noisy
        return actions(state, v1=torch.ones_like(denoise), v2=denoise)

    def finished(self, state: State, outcome: Outcome) -> bool:
        return bool((outcome.denoised | ~state.free).all())


class Threshold(Adaptive):
    """Denoises every token of at least ``threshold`` probability, and the most probable one (Fast-dLLM).

    Args:
        threshold: probability; 0 denoises everything in one iteration, 1 one token per iteration and row, unless others
            have probability 1.
    """

    def __init__(self, threshold: float = 0.9) -> None:
        super().__init__()
        self.threshold = probability("threshold", threshold)

    def accepted(self, state: State) -> Tensor:
        best = top_k(state.scores, torch.ones_like(state.count), state.noisy)
        return best | (state.noisy & (state.scores.exp() >= self.threshold))


class Factor(Adaptive):
    """Denoises the ``r`` most probable tokens while ``p_r >= 1 - factor / (r + 1)``, at least one (Fast-dLLM).

    The more tokens are denoised together, the more certain the last of them has to be.

    Args:
        factor: 0 denoises one token per iteration and row, unless others have probability 1.
    """

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        require(factor >= 0, f"decoding.transition.factor must be 0 or greater, got {factor}")
        self.factor = factor

    def accepted(self, state: State) -> Tensor:
        probs = state.scores.double().exp().nan_to_num(0.0).masked_fill(~state.noisy, -1.0)
        descending, order = probs.sort(dim=1, descending=True, stable=True)
        rank = torch.arange(1, probs.shape[1] + 1, device=probs.device)
        # The required probability rises with the rank and the probability falls: no token after a failure passes.
        passed = (descending >= 1 - self.factor / (rank + 1)) | (rank == 1)
        return torch.zeros_like(state.noisy).scatter(1, order, passed) & state.noisy


class KLASS(Adaptive):
    """Denoises probable tokens with a stable distribution, else the schedule's number (KLASS, Kim et al., 2025).

    A token is stable if ``KL(p_now || p_before) < max_divergence`` in each of the last ``history`` iterations. Rows
    without a probable and stable token denoise as many as the schedule lacks, at least one.

    Args:
        threshold: minimum probability.
        max_divergence: maximum Kullback-Leibler divergence in nats.
        history: number of iterations.
    """

    MEMO = "distributions"

    def __init__(self, threshold: float = 0.6, max_divergence: float = 0.015, history: int = 2) -> None:
        super().__init__()
        require(max_divergence >= 0, f"decoding.transition.max_divergence must not be negative, got {max_divergence}")
        require(history >= 1, f"decoding.transition.history must be at least 1, got {history}")
        self.threshold, self.max_divergence, self.history = probability("threshold", threshold), max_divergence, history

    def accepted(self, state: State) -> Tensor:
        stable = self._stable_iterations(state) >= self.history
        certain = state.noisy & stable & (state.scores.exp() > self.threshold)
        missing = (state.count - (state.denoised & state.free).sum(1)).clamp(min=1)
        scheduled = top_k(state.scores, missing, state.noisy)
        return torch.where(certain.any(1, keepdim=True), certain, scheduled)

    def _stable_iterations(self, state: State) -> Tensor:
        """Return for how many iterations in a row each position ``[R, N]`` was stable, and store the distributions."""
        memo, device = state.memo, state.tokens.device
        if self.MEMO not in memo:  # the first iteration, with all rows of the canvas
            nowhere = torch.full_like(state.tokens, -1)
            memo[self.MEMO], memo["place"], memo["stable"] = [state.logits], nowhere, torch.zeros_like(state.tokens)
        (before,), count = memo[self.MEMO], memo["stable"][state.rows]
        place = memo["place"][state.rows].flatten()[state.active_index]
        # Positions without an earlier distribution are compared with any one, and are not stable.
        stable = (place >= 0) & (divergence(state.logits, before[place.clamp(min=0)]) < self.max_divergence)
        stable = torch.zeros_like(state.active).masked_scatter(state.active, stable)
        count = torch.where(state.active, torch.where(stable, count + 1, 0), count)
        # Only the distributions of the last iteration are kept, and where each of them is.
        places = torch.full_like(state.tokens, -1)
        places.masked_scatter_(state.active, torch.arange(len(state.logits), device=device))
        memo[self.MEMO] = [state.logits]
        memo["place"] = memo["place"].index_copy(0, state.rows, places)
        memo["stable"] = memo["stable"].index_copy(0, state.rows, count)
        return count


class EntropyBound(Adaptive):
    """Denoises the largest set of lowest entropies with ``sum H - max H <= gamma`` (EB-sampler, Ben-Hamu et al., 2025).

    The bound limits the mutual information of the tokens that are denoised together, that is the error made by
    treating them as independent. ``H`` is the entropy, in nats, of the model's distribution at temperature 1.

    Args:
        gamma: 0 denoises one token per iteration and row, unless others have entropy 0.
    """

    def __init__(self, gamma: float = 0.1) -> None:
        super().__init__()
        require(gamma >= 0, f"decoding.transition.gamma must be 0 or greater, got {gamma}")
        self.gamma = gamma

    def accepted(self, state: State) -> Tensor:
        return self.within_bound(state, state.noisy)

    def within_bound(self, state: State, among: Tensor) -> Tensor:
        """Return the largest set of positions ``[R, N]`` (bool) within ``among`` that satisfies the bound."""
        entropies = torch.full(state.tokens.shape, float("inf"), dtype=torch.float64, device=state.tokens.device)
        entropies.masked_scatter_(state.active, entropy(state.logits).double())
        ascending, order = entropies.masked_fill(~among, float("inf")).sort(dim=1, stable=True)
        # In ascending order the maximum is the last one: sum H - max H is the sum of those before it.
        before = functional.pad(ascending.cumsum(1)[:, :-1], (1, 0))
        return torch.zeros_like(among).scatter(1, order, before <= self.gamma) & among


class RenoisingEntropyBound(EntropyBound):
    """The entropy bound without memory, for noise that looks like text (DiffusionGemma).

    In every iteration the bound is applied to *all* free positions. Accepted ones take the proposal, denoised or not,
    and all others become new noise. A row ends when all its positions are accepted at once. The published sampler
    anneals the temperature of the proposals from 0.8 to 0.4 in at most 32 iterations.
    """

    def check_noise(self, process: DiffusionProcess) -> None:
        require_text_noise(process, instead="decoding=entropy_bound")

    def active(self, progress: Progress) -> Tensor:
        return progress.free & progress.noisy.any(1, keepdim=True)

    def route(self, state: State) -> Tensor:
        accepted = self.within_bound(state, state.free) if state.s > 0 else state.free
        chosen = torch.where(accepted, Action.PROPOSE, Action.REDRAW)
        return torch.where(state.noisy.any(1, keepdim=True), chosen, Action.KEEP)


class Editing(Threshold):
    """``threshold``, and a denoised token is replaced by another one of high probability (LLaDA 2).

    The network is called at all free positions. A row ends when nothing is noisy and nothing was replaced.

    Args:
        threshold: probability at which a noisy token is denoised.
        edit_threshold: probability above which a different token replaces a denoised one; 1 replaces none.
    """

    MEMO = "settled"

    def __init__(self, threshold: float = 0.9, edit_threshold: float = 0.95) -> None:
        super().__init__(threshold)
        self.edit_threshold = probability("edit_threshold", edit_threshold)

    def active(self, progress: Progress) -> Tensor:
        return progress.free & ~self._settled(progress)[:, None]

    def route(self, state: State) -> Tensor:
        better = (state.proposal != state.tokens) & (state.scores.exp() > self.edit_threshold)
        edited = state.active & state.denoised & better
        action = torch.where(edited, Action.PROPOSE, super().route(state))
        unchanged = ~(state.free & (action != Action.KEEP)).any(1)
        state.memo[self.MEMO] = self._memo(state).index_copy(0, state.rows, unchanged)
        return action

    def finished(self, state: State, outcome: Outcome) -> bool:
        return bool(self._settled(state).all())

    def _memo(self, progress: Progress) -> Tensor:
        if self.MEMO not in progress.memo:  # the first iteration, with all rows of the canvas
            progress.memo[self.MEMO] = ~progress.free.any(1)
        return progress.memo[self.MEMO]

    def _settled(self, progress: Progress) -> Tensor:
        return self._memo(progress)[progress.rows]


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """Return ``KL(softmax(logits) || softmax(others))`` in nats, ``[P]``; infinite where it is NaN.

    >>> divergence(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0]]))
    tensor([0.])
    """
    size, parts = rows_at_once(logits), [logits.new_zeros(0, dtype=torch.float32)]
    for p, q in zip(logits.split(size), others.split(size), strict=True):
        log_p, log_q = p.float().log_softmax(-1), q.float().log_softmax(-1)
        parts.append((log_p.exp() * (log_p - log_q)).sum(-1))
    return torch.cat(parts).nan_to_num(nan=float("inf"))


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy ``[P]`` in nats, float64, of ``softmax(logits [P, V])``; infinite where it is NaN.

    >>> entropy(torch.zeros(1, 4)).exp()
    tensor([4.], dtype=torch.float64)
    """
    parts = [torch.special.entr(rows.double().softmax(-1)).sum(-1) for rows in logits.split(rows_at_once(logits))]
    return torch.cat(parts).nan_to_num(nan=float("inf"))
