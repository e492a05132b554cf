"""Training objectives: logits and a corruption in, the loss at every position out.

The caller divides their sum by the number of learnable target tokens of the whole optimiser step. An objective also
says at which positions it needs logits, so that the vocabulary is projected nowhere else.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.diffusion.chunks import in_chunks
from rdm.diffusion.process import Corruption, DiffusionProcess
from rdm.diffusion.reweighting import Original, Reweighting
from rdm.diffusion.schedule import ratio
from rdm.errors import require

SMALLEST = torch.finfo(torch.float32).tiny


class Objective(ABC):
    """A loss at every position."""

    @abstractmethod
    def positions(self, corruption: Corruption) -> Tensor:
        """``[R, N]`` bool: where logits are needed; ``P`` of them."""

    @abstractmethod
    def losses(self, logits: Tensor, corruption: Corruption, process: DiffusionProcess) -> Tensor:
        """The loss ``[P]``, given the logits ``[P, V]`` and the corruption at these positions (``corruption.at``)."""

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
        loss = smoothed_cross_entropy(logits, corruption.x0, process.noise.learnable, self.label_smoothing)
        return loss * self.reweighting.weight(corruption.t, process.schedule).to(loss.dtype)

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
        return posterior_divergence(logits, corruption.x_t, corruption.x0, corruption.t, process)

    def unweighted(self) -> Objective:
        return self

    def is_bound(self, process: DiffusionProcess) -> bool:
        return True


def smoothed_cross_entropy(logits: Tensor, target: Tensor, allowed: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy ``[P]`` against ``(1 - smoothing) onehot(target) + smoothing * uniform(allowed)``."""
    spread = smoothing / allowed.sum() * allowed.float()

    def of(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        index = target[rows, None]
        log_probs = logits.log_softmax(-1)
        losses = (smoothing - 1) * log_probs.gather(1, index).squeeze(1)
        if smoothing > 0:
            losses = losses - log_probs @ spread
        slope = log_probs.exp_()
        if smoothing > 0:
            slope -= spread
        return losses, slope.scatter_add_(1, index, torch.full(index.shape, smoothing - 1, device=index.device))

    return in_chunks(logits, of)


def posterior_divergence(logits: Tensor, x_t: Tensor, x0: Tensor, t: Tensor, process: DiffusionProcess) -> Tensor:
    """``KL(q(x_s | x_t, x_0) || q(x_s | x_t, f))``, ``[P]``, with ``s = t - 1`` and ``f = softmax(logits [P, V])``.

    The posterior (see :meth:`DiffusionProcess.posterior_log_probs`) is ``A_k u_k / Z`` with an ``A`` that knows nothing
    of ``f``, so that of the true one (``f`` one-hot at ``x_0``) and the model's only ``u`` and ``Z`` remain:

        u_k = alpha_s f_k + (1 - alpha_s) q_k,        Z = alpha_t f_{x_t} + (1 - alpha_t) q_{x_t}
        KL  = sum_k true_k log(u_k(x_0) / u_k(f)) + log(Z(f) / Z(x_0))
        d KL / d log f_k = [k = x_t] alpha_t f_k / Z(f) - true_k alpha_s f_k / u_k(f)
    """
    noise = process.noise.probs
    alpha_t, alpha_s = process.schedule.alpha(t), process.schedule.alpha(t - 1)
    beta, noise_t, noise_0 = ratio(alpha_t, alpha_s), noise[x_t], noise[x0]
    alpha_s = alpha_s.clamp(min=1e-300)  # matters only if alpha is 0 before T
    evidence = alpha_t * (x_t == x0) + (1 - alpha_t) * noise_t  # Z(x_0)
    elsewhere = (1 - beta) * noise_t / evidence  # A_k / Z(x_0) for k other than x_t
    here = elsewhere + beta / evidence
    clean_0 = alpha_s + (1 - alpha_s) * noise_0  # u(x_0) at x_0
    true_0 = torch.where(x_t == x0, here, elsewhere) * clean_0

    def of(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        def column(values: Tensor) -> Tensor:
            return values[rows, None].to(logits.dtype)

        log_f, at_t, at_0 = logits.log_softmax(-1), x_t[rows, None], x0[rows, None]
        log_f_t, log_f_0 = (log_f.gather(1, at).squeeze(1).double() for at in (at_t, at_0))
        # At x_0 and in Z, f may be all there is and tiny: these are computed as logarithms.
        log_u = torch.logaddexp(alpha_s[rows].log() + log_f_0, ((1 - alpha_s) * noise_0)[rows].log())
        log_z = torch.logaddexp(alpha_t[rows].log() + log_f_t, ((1 - alpha_t) * noise_t)[rows].log())
        f = log_f.exp_()
        clean = column(1 - alpha_s) * noise.to(logits.dtype)
        u = (clean + column(alpha_s) * f).clamp_(min=SMALLEST)
        true = (clean * column(elsewhere)).scatter_(1, at_t, clean.gather(1, at_t) * column(here))
        true.scatter_(1, at_0, column(true_0))
        surprise = clean.div_(u).clamp_(min=SMALLEST).log_().mul_(true).scatter_(1, at_0, 0.0).sum(1)
        losses = surprise + true_0[rows] * (clean_0[rows].log() - log_u) + log_z - evidence[rows].log()
        share_0 = (alpha_s[rows].log() + log_f_0 - log_u).exp()  # alpha_s f / u at x_0
        slope = true.mul_(f).div_(u).mul_(-column(alpha_s)).scatter_(1, at_0, (-true_0[rows] * share_0).to(f)[:, None])
        slope.scatter_add_(1, at_t, (alpha_t[rows].log() + log_f_t - log_z).exp().to(f)[:, None])
        return losses, slope.addcmul_(f, slope.sum(1, keepdim=True), value=-1)

    return in_chunks(logits, of)
