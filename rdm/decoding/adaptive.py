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
from rdm.decoding.transition import Outcome, Progress, Router, State, actions, top_k
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
        threshold: probability; 0 denoises everything in one iteration, 1 one token per iteration and row.
    """

    def __init__(self, threshold: float = 0.9) -> None:
        super().__init__()
        require(0 <= threshold <= 1, f"decoding.transition.threshold must be a probability in [0, 1], got {threshold}")
        self.threshold = threshold

    def accepted(self, state: State) -> Tensor:
        best = top_k(state.scores, torch.ones_like(state.count), state.noisy)
        return best | (state.noisy & (state.scores.exp() >= self.threshold))


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
        entropies = torch.full(state.tokens.shape, float("inf"), dtype=torch.float64, device=state.tokens.device)
        entropies[state.active] = entropy(state.logits)
        ascending, order = entropies.masked_fill(~state.noisy, float("inf")).sort(dim=1, stable=True)
        # In ascending order the maximum is the last one: sum H - max H is the sum of those before it.
        before = functional.pad(ascending.cumsum(1)[:, :-1], (1, 0))
        return torch.zeros_like(state.noisy).scatter(1, order, before <= self.gamma) & state.noisy


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy ``[P]`` in nats, float64, of ``softmax(logits [P, V])``; infinite where it is NaN.

    >>> entropy(torch.zeros(1, 4)).exp()
    tensor([4.], dtype=torch.float64)
    """
    parts = [torch.special.entr(rows.double().softmax(-1)).sum(-1) for rows in logits.split(rows_at_once(logits))]
    return torch.cat(parts).nan_to_num(nan=float("inf"))
