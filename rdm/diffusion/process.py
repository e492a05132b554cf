"""The forward process ``q(x_t | x_0)`` and its posterior ``q(x_s | x_t, x_0)``.

Training and sampling cost O(B N): the posterior is drawn through ``lambda1`` and ``lambda2`` (Proposition 3.1,
generalised to any gap ``s < t``). The dense form serves the vanilla bound and the tests.
"""

import torch
from torch import Tensor, nn

from rdm.describe import Described
from rdm.diffusion.noise import Noise, draw_uniform
from rdm.diffusion.schedule import Schedule, ratio


class DiffusionProcess(Described, nn.Module):
    """The distributions that a noise schedule and a noise define.

    Args:
        schedule: the shares ``alpha_t`` of tokens that are kept.
        noise: the distribution of the others.
        token_steps: the network reads a step for each token, 0 if it is denoised (``b_t = 1``), so that it knows which
            tokens are noise even if noise looks like text.

    >>> from rdm.diffusion.noise import Absorbing
    >>> from rdm.diffusion.schedule import Linear
    >>> from rdm.vocab import Vocab
    >>> process = DiffusionProcess(Linear(num_steps=4), Absorbing(Vocab(size=9)))
    >>> process.corrupt(torch.tensor([[5, 6, 7]]), t=torch.tensor([4]))
    tensor([[1, 1, 1]])
    """

    def __init__(self, schedule: Schedule, noise: Noise, token_steps: bool = False) -> None:
        super().__init__()
        self.schedule = schedule
        self.noise = noise
        self.token_steps = token_steps

    @property
    def num_steps(self) -> int:
        return self.schedule.num_steps

    def step_keeping(self, share: Tensor) -> Tensor:
        """Return the steps in ``1..T`` whose ``alpha_t`` is nearest to ``share``, in the shape of ``share``."""
        alpha = self.schedule.alpha(torch.arange(1, self.num_steps + 1, device=share.device))
        return 1 + (share[..., None] - alpha).abs().argmin(-1)

    def network_steps(self, t: Tensor, noisy: Tensor) -> Tensor:
        """Return the steps that the network reads: ``t [R]``, or with ``token_steps`` one for each token ``[R, N]``.

        >>> from rdm.diffusion.noise import Uniform
        >>> from rdm.diffusion.schedule import Linear
        >>> from rdm.vocab import Vocab
        >>> process = DiffusionProcess(Linear(num_steps=4), Uniform(Vocab(size=9)), token_steps=True)
        >>> process.network_steps(torch.tensor([3]), noisy=torch.tensor([[True, False]]))
        tensor([[3, 0]])
        """
        return torch.where(noisy, t[:, None], 0) if self.token_steps else t

    def learnable(self, x0: Tensor) -> Tensor:
        """Return a mask ``[..., N]`` of the positions of ``x0`` that may be noised."""
        return self.noise.learnable[x0]

    def corrupt(self, x0: Tensor, t: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``x_t ~ alpha_t x_0 + (1 - alpha_t) q_noise``.

        Args:
            x0: ``[R, N]`` clean tokens.
            t: ``[R]`` steps in ``0..T``.
        """
        alpha_t = self.schedule.alpha(t)[:, None]
        keep = _bernoulli(alpha_t.expand(x0.shape), generator) | ~self.learnable(x0)
        return torch.where(keep, x0, self.noise.sample(x0, generator))

    def lambda1(self, x_t: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """Return the probability ``[R, N]`` that a denoised token stays denoised from ``t`` to ``s``."""
        alpha_t, alpha_s = self.schedule.alpha(t)[:, None], self.schedule.alpha(s)[:, None]
        noise = self.noise.prob(x_t)
        leave = (1 - ratio(alpha_t, alpha_s)) * (1 - alpha_s) * noise
        return 1 - ratio(leave, alpha_t + (1 - alpha_t) * noise)

    def lambda2(self, t: Tensor, s: Tensor) -> Tensor:
        """Return the probability ``[R, 1]`` that a noisy token is denoised from ``t`` to ``s``."""
        alpha_t, alpha_s = self.schedule.alpha(t)[:, None], self.schedule.alpha(s)[:, None]
        return ratio(alpha_s - alpha_t, 1 - alpha_t)

    def renoise(self, x_t: Tensor, t: Tensor, s: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw tokens that stay noisy from ``t`` to ``s``.

        ``q_noise(x_t) = (alpha_t / alpha_s) x_t + (1 - alpha_t / alpha_s) q_noise``
        """
        beta = ratio(self.schedule.alpha(t), self.schedule.alpha(s))[:, None]
        return torch.where(_bernoulli(beta.expand(x_t.shape), generator), x_t, self.noise.sample(x_t, generator))

    def step_posterior(
        self, x_t: Tensor, x0: Tensor, t: Tensor, s: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw ``x_s ~ q(x_s | x_t, x_0)`` for ``s < t`` (Eq. 4), in O(R N)."""
        denoised = x_t == x0
        stays = _bernoulli(self.lambda1(x_t, t, s), generator)
        turns = _bernoulli(self.lambda2(t, s).expand(x_t.shape), generator)
        x_s = torch.where(
            denoised,
            torch.where(stays, x_t, self.noise.sample(x_t, generator)),
            torch.where(turns, x0, self.renoise(x_t, t, s, generator)),
        )
        return torch.where(self.learnable(x0), x_s, x0)

    def prior_divergence(self, x0: Tensor) -> Tensor:
        """Return ``KL(q(x_T | x_0) || q_noise)``, float64, in the shape of ``x0``.

        It is infinite where ``alpha_T > 0`` and the noise never produces ``x_0``.
        """
        alpha = self.schedule.alpha(torch.tensor(self.num_steps, device=x0.device))
        alpha = torch.where(alpha > 1e-12, alpha, 0.0)  # a cosine schedule ends at 1e-33 by rounding
        noise = self.noise.prob(x0)
        here = alpha + (1 - alpha) * noise
        divergence = torch.xlogy(here, here / noise) + (1 - alpha) * (1 - noise) * torch.log1p(-alpha)
        return torch.where(self.learnable(x0) & (alpha > 0), divergence, 0.0)

    def posterior_log_probs(self, x_t: Tensor, x0_log_probs: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """Return the dense ``log q(x_s | x_t, x_0 = f)``, where ``f`` may be a distribution (Eq. 14).

            [beta x_t + (1 - beta) q_noise(u = x_t)] * [alpha_s f + (1 - alpha_s) q_noise]
            -------------------------------------------------------------------------------,   beta = alpha_t / alpha_s
                        alpha_t f(x_t) + (1 - alpha_t) q_noise(u = x_t)

        With a one-hot ``f`` this is the true posterior; with the denoiser's output it is the vanilla parameterisation
        ``p(x_s | x_t)``, which for uniform noise and a large vocabulary hardly changes a token.

        Args:
            x_t: ``[P]`` tokens.
            x0_log_probs: ``[P, V]``, ``log f``.
            t, s: ``[P]`` steps, ``s < t``.

        Returns:
            ``[P, V]`` log-probabilities.
        """
        dtype = x0_log_probs.dtype
        alpha_t, alpha_s = self.schedule.alpha(t)[:, None], self.schedule.alpha(s)[:, None]
        beta, noise = ratio(alpha_t, alpha_s), self.noise.prob(x_t)[:, None]
        prior = torch.logaddexp(
            # The clamp matters only if alpha is 0 before T: log(0) in both arguments gives a NaN gradient.
            alpha_s.clamp(min=1e-300).log().to(dtype) + x0_log_probs,
            ((1 - alpha_s).log() + self.noise.probs.log()).to(dtype),
        )
        index = x_t[:, None]
        elsewhere, here = ((1 - beta) * noise).log().to(dtype), (beta + (1 - beta) * noise).log().to(dtype)
        joint = (prior + elsewhere).scatter(1, index, prior.gather(1, index) + here)
        evidence = torch.logaddexp(
            alpha_t.log().to(dtype) + x0_log_probs.gather(1, index), ((1 - alpha_t) * noise).log().to(dtype)
        )
        return joint - evidence


def _bernoulli(probability: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw booleans that are true with ``probability``, in float64 so that 0 and 1 are exact."""
    return draw_uniform(probability, generator) < probability
