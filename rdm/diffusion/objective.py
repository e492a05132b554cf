"""Training objectives: logits and a corruption in, a sum over positions out.

The caller divides by the number of learnable target tokens of the whole optimiser step. An objective also says at which
positions it needs logits, so that the vocabulary is projected nowhere else.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

from rdm.diffusion.process import Corruption, DiffusionProcess
from rdm.diffusion.reweighting import Original, Reweighting
from rdm.errors import require


class Objective(ABC):
    """A loss summed over positions."""

    @abstractmethod
    def positions(self, corruption: Corruption) -> Tensor:
        """``[R, N]`` bool: where logits are needed; ``P`` of them."""

    @abstractmethod
    def losses(self, logits: Tensor, corruption: Corruption, process: DiffusionProcess) -> Tensor:
        """The loss ``[P]`` at every position; ``logits`` is ``[P, V]`` in row-major order of the positions."""

    def __call__(self, logits: Tensor, corruption: Corruption, process: DiffusionProcess) -> Tensor:
        """The losses summed over the ``P`` positions."""
        return self.losses(logits, corruption, process).sum()

    @abstractmethod
    def unweighted(self) -> "Objective":
        """The same as a term of the negative log-likelihood: no weight but that of the derivation, no smoothing."""

    @abstractmethod
    def is_bound(self, process: DiffusionProcess) -> bool:
        """Whether the sum of the :meth:`unweighted` terms over all steps bounds the negative log-likelihood."""


class ReweightedCrossEntropy(Objective):
    """``- lambda_{t-1} * sum_n (1 - b_{t,n}) x_{0,n}^T log f(x_{t,n})`` (Eq. 8), for any noise.

    With the ``original`` weight and absorbing noise this is the variational bound of D3PM-absorbing. Label smoothing
    spreads over the ids the model may predict and is weighted like the rest.
    """

    def __init__(self, reweighting: Reweighting, label_smoothing: float = 0.1) -> None:
        require(0 <= label_smoothing < 1, f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.reweighting = reweighting
        self.label_smoothing = label_smoothing

    def positions(self, corruption: Corruption) -> Tensor:
        return corruption.noisy

    def losses(self, logits: Tensor, corruption: Corruption, process: DiffusionProcess) -> Tensor:
        noisy, target = corruption.noisy, corruption.x0[corruption.noisy]
        loss = smoothed_cross_entropy(logits, target, process.noise.learnable, self.label_smoothing)
        weight = self.reweighting.weight(corruption.t, process.schedule).to(loss.dtype)
        return loss * weight[:, None].expand(noisy.shape)[noisy]

    def unweighted(self) -> Objective:
        return ReweightedCrossEntropy(Original(), label_smoothing=0.0)

    def is_bound(self, process: DiffusionProcess) -> bool:
        # The loss knows which tokens are noise. So does the model if noise never looks like text (masks); elsewhere
        # it does not, and the sum is only a surrogate.
        return not bool((process.noise.probs[process.noise.learnable] > 0).any())


class VariationalBound(Objective):
    """``KL(q(x_{t-1} | x_t, x_0) || q(x_{t-1} | x_t, f(x_t)))`` over dense posteriors: the vanilla bound.

    At ``t = 1`` the true posterior is a point mass on ``x_0`` and the divergence is the negative log-likelihood of
    ``x_0`` under the posterior form of ``p(x_0 | x_1)``, so one formula serves every step.
    """

    def positions(self, corruption: Corruption) -> Tensor:
        return corruption.learnable

    def losses(self, logits: Tensor, corruption: Corruption, process: DiffusionProcess) -> Tensor:
        learnable = corruption.learnable
        t = corruption.t[:, None].expand(learnable.shape)[learnable]
        x_t, x0 = corruption.x_t[learnable], corruption.x0[learnable]
        model = process.posterior_log_probs(x_t, logits.float().log_softmax(-1), t, t - 1)
        with torch.no_grad():
            clean = torch.full_like(model, float("-inf")).scatter_(1, x0[:, None], 0.0)
            true = process.posterior_log_probs(x_t, clean, t, t - 1)
        # Ids the true posterior rules out contribute nothing, whatever the model says of them.
        return torch.where(true.isinf(), 0.0, true.exp() * (true - model)).sum(1)

    def unweighted(self) -> Objective:
        return self

    def is_bound(self, process: DiffusionProcess) -> bool:
        return True


def smoothed_cross_entropy(logits: Tensor, target: Tensor, allowed: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy ``[P]`` against ``(1 - smoothing) onehot(target) + smoothing * uniform(allowed)``.

    ``logsumexp`` cancels between the two parts, which leaves the plain cross-entropy plus
    ``smoothing * (logit of the target - mean logit of the allowed ids)``.
    """
    logits = logits.float()
    loss = functional.cross_entropy(logits, target, reduction="none")
    if smoothing == 0:
        return loss
    mean = logits @ (allowed.to(logits.dtype) / allowed.sum())
    return loss + smoothing * (logits.gather(1, target[:, None]).squeeze(1) - mean)
