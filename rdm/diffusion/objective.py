"""Training objectives: the terms of the loss of a noised batch.

An objective calls the denoiser itself, so it decides how many passes it makes and at which positions. The default is
one pass that projects to the vocabulary at :meth:`Objective.positions` only.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rdm.cross_entropy import Logits, in_chunks, smoothed_cross_entropy
from rdm.describe import Described
from rdm.diffusion.noised import Denoise, NoisedBatch
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Original, Reweighting
from rdm.diffusion.schedule import ratio
from rdm.errors import require
from rdm.terms import Term
from rdm.vocab import Vocab

SMALLEST = torch.finfo(torch.float32).tiny


class Objective(Described, ABC):
    """The loss of a denoiser on noised copies of a batch.

    Subclasses define a loss at every position (:meth:`positions`, :meth:`losses`). An objective with several passes
    overrides :meth:`terms`; one with a denominator that no system knows also overrides :meth:`counts`.

    >>> from rdm.diffusion.copies import Single
    >>> from rdm.diffusion.noise import Absorbing
    >>> from rdm.diffusion.reweighting import Constant
    >>> from rdm.diffusion.schedule import Linear
    >>> process = DiffusionProcess(Linear(num_steps=1), Absorbing(Vocab(size=7)))
    >>> noised = Single()(process, torch.tensor([[5, 6, 5, 6]]))
    >>> (term,) = ReweightedCrossEntropy(Constant()).terms(
    ...     lambda x_t, t, positions: torch.zeros(len(positions[0]), 7), noised, process
    ... )
    >>> term.name, term.unit, round(term.total.item(), 4)  # 4 log 7
    ('diffusion', 'tokens', 7.7836)
    """

    def terms(
        self, denoise: Denoise, noised: NoisedBatch, process: DiffusionProcess, generator: torch.Generator | None = None
    ) -> list[Term]:
        """Return the terms of the loss, each a sum over sentences of the mean over their noised copies.

        Args:
            denoise: the network, bound to its sources; it may be called any number of times.
            noised: the noised copies.
            process: the forward process that noised them.
            generator: source of any further random draws.
        """
        positions = self.positions(noised).nonzero(as_tuple=True)  # the only device synchronisation of the step
        logits = denoise(noised.x_t, process.network_steps(noised.t, noised.noisy), positions)
        losses = self.losses(logits, noised.at(positions), process)
        return [Term("diffusion", losses.sum() / noised.copies, process.noise.unit)]

    def counts(self, target: Tensor, vocab: Vocab) -> dict[str, Tensor]:
        """Return further denominators of the terms, as scalars.

        ``target [B, N]`` are the learned target tokens. Every diffusion system counts ``sentences``,
        ``tokens`` and ``ordinary`` tokens.
        """
        return {}

    def check(self, process: DiffusionProcess) -> None:
        """Raise a :class:`~rdm.errors.UserError` if the loss makes no sense for the process: by default never."""

    @abstractmethod
    def positions(self, noised: NoisedBatch) -> Tensor:
        """Return a mask ``[R, N]`` of the ``P`` positions where logits are needed."""

    @abstractmethod
    def losses(self, logits: Logits, noised: NoisedBatch, process: DiffusionProcess) -> Tensor:
        """Return the losses ``[P]`` from the logits ``[P, V]`` and the noised batch at these positions."""

    @abstractmethod
    def unweighted(self) -> "Objective":
        """Return the term of the negative log-likelihood: original weights, no label smoothing."""

    @abstractmethod
    def is_bound(self, process: DiffusionProcess) -> bool:
        """Whether the :meth:`unweighted` terms, summed over all steps, bound the negative log-likelihood."""


class ReweightedCrossEntropy(Objective):
    """``- lambda_{t-1} * sum_n (1 - b_{t,n}) x_{0,n}^T log f(x_{t,n})`` (Eq. 8), for any noise.

    With the ``original`` weight and absorbing noise this is the variational bound of D3PM-absorbing. Label smoothing is
    spread over the ids that the model may predict, and is weighted like the rest.

    >>> from rdm.diffusion.reweighting import Linear
    >>> ReweightedCrossEntropy(Linear(), label_smoothing=0).describe()
    {'class': 'ReweightedCrossEntropy', 'reweighting': {'class': 'Linear'}, 'label_smoothing': 0.0}
    """

    def __init__(self, reweighting: Reweighting, label_smoothing: float = 0.1) -> None:
        require(0 <= label_smoothing < 1, f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.reweighting = reweighting
        self.label_smoothing = label_smoothing

    def positions(self, noised: NoisedBatch) -> Tensor:
        return noised.noisy

    def losses(self, logits: Logits, noised: NoisedBatch, process: DiffusionProcess) -> Tensor:
        loss = smoothed_cross_entropy(logits, noised.x0, process.noise.learnable, self.label_smoothing)
        return loss * self.reweighting.weight(noised.t, process.schedule).to(loss.dtype)

    def unweighted(self) -> Objective:
        return ReweightedCrossEntropy(Original(), label_smoothing=0.0)

    def is_bound(self, process: DiffusionProcess) -> bool:
        # The loss uses which tokens are noise. The model knows this too if noise never looks like text (masks);
        # otherwise it does not, and the sum is only a surrogate.
        return not bool((process.noise.probs[process.noise.learnable] > 0).any())


class VariationalBound(Objective):
    """``KL(q(x_{t-1} | x_t, x_0) || q(x_{t-1} | x_t, f(x_t)))`` over dense posteriors: the vanilla bound.

    At ``t = 1`` the true posterior is a point mass on ``x_0`` and the divergence is the negative log-likelihood of
    ``x_0`` under the posterior form of ``p(x_0 | x_1)``, so one formula serves every step.

    >>> VariationalBound().describe()
    {'class': 'VariationalBound'}
    """

    def check(self, process: DiffusionProcess) -> None:
        message = (
            "diffusion.process.token_steps=true: the vanilla bound is that of a network that does not know the noise"
        )
        require(not process.token_steps, message)

    def positions(self, noised: NoisedBatch) -> Tensor:
        return noised.learnable

    def losses(self, logits: Logits, noised: NoisedBatch, process: DiffusionProcess) -> Tensor:
        return posterior_divergence(logits, noised.x_t, noised.x0, noised.t, process)

    def unweighted(self) -> Objective:
        return self

    def is_bound(self, process: DiffusionProcess) -> bool:
        return True


def posterior_divergence(logits: Logits, x_t: Tensor, x0: Tensor, t: Tensor, process: DiffusionProcess) -> Tensor:
    """Return ``KL(q(x_s | x_t, x_0) || q(x_s | x_t, f))`` ``[P]`` for ``s = t - 1``.

    ``f = softmax(logits [P, V])``; ``x_t``, ``x0`` and ``t`` are ``[P]``.

    The posterior (see :meth:`DiffusionProcess.posterior_log_probs`) is ``A_k u_k / Z``, where ``A`` does not depend on
    ``f``. It cancels between the true posterior (``f`` one-hot at ``x_0``) and the model's:

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

    def loss_and_gradient(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        def column(values: Tensor) -> Tensor:
            return values[rows, None].to(logits.dtype)

        log_f, at_t, at_0 = logits.log_softmax(-1), x_t[rows, None], x0[rows, None]
        log_f_t, log_f_0 = (log_f.gather(1, at).squeeze(1).double() for at in (at_t, at_0))
        # At x_0 and in Z, f may be the only summand and tiny: computed as logarithms.
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

    return in_chunks(logits, loss_and_gradient)
