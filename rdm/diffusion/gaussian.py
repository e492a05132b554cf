"""Gaussian diffusion over word embeddings, the continuous form of :mod:`rdm.diffusion.process`.

    q(z_0 | w)   = N(E(w), (1 - alpha_1) I)                        words become points
    q(z_t | z_0) = N(sqrt(alpha_t) z_0, (1 - alpha_t) I)           ``alpha_0 = 1``, ``alpha_T`` nearly 0

``alpha`` is often written "alpha bar": the share of the variance that is signal at step ``t`` of ``0..T``.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdm.cross_entropy import rows_at_once
from rdm.describe import Described
from rdm.diffusion.schedule import Schedule

LEAST_KEPT = 1e-3
"""A step keeps at least this share of the signal, so that ``alpha_T`` is not 0 (Nichol & Dhariwal's limit on beta)."""


class GaussianProcess(Described, nn.Module):
    """The forward process of a schedule and its reverse steps.

    Shapes: ``R`` rows of ``N`` points in ``E`` dimensions.

    >>> from rdm.diffusion.schedule import Sqrt
    >>> process = GaussianProcess(Sqrt(num_steps=20))
    >>> z_t = process.corrupt(torch.zeros(2, 3, 4), t=torch.tensor([1, 20]))
    >>> mean, std = process.back(z_t, torch.zeros(2, 3, 4), t=20, s=0)
    >>> mean.shape, std
    (torch.Size([2, 3, 4]), 0.0)
    """

    alpha: Tensor

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.num_steps = schedule.num_steps
        alpha = schedule.alpha(torch.arange(self.num_steps + 1))
        alpha[1:] = torch.maximum(alpha[1:], LEAST_KEPT * alpha[:-1])
        self.register_buffer("alpha", alpha, persistent=False)  # [T + 1] float64

    def points(self, embeddings: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``z_0 ~ q(z_0 | w)`` from ``E(w) [R, N, E]``: the noise of one step."""
        return embeddings + (1 - self.alpha[1]).sqrt().to(embeddings.dtype) * normal(embeddings, generator)

    def corrupt(self, z0: Tensor, t: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``z_t ~ q(z_t | z_0)`` for ``z0 [R, N, E]`` and steps ``t [R]`` in ``0..T``."""
        alpha_t = self.alpha[t][:, None, None]
        return alpha_t.sqrt().to(z0.dtype) * z0 + (1 - alpha_t).sqrt().to(z0.dtype) * normal(z0, generator)

    def back(self, z_t: Tensor, z0: Tensor, t: int, s: int, eta: float = 1.0) -> tuple[Tensor, float]:
        """Return mean ``[R, N, E]`` and standard deviation of a reverse step from ``t`` to ``s < t``.

            sigma^2 = eta^2 (1 - alpha_s) / (1 - alpha_t) (1 - alpha_t / alpha_s)
            eps     = (z_t - sqrt(alpha_t) z_0) / sqrt(1 - alpha_t)
            mean    = sqrt(alpha_s) z_0 + sqrt(1 - alpha_s - sigma^2) eps         (Song et al., 2021, Eq. 12)

        With ``eta = 1`` this is the posterior ``q(z_s | z_t, z_0)``, with ``eta = 0`` the deterministic step of DDIM.
        At ``s = 0`` the mean is ``z_0``.
        """
        alpha_t, alpha_s = float(self.alpha[t]), float(self.alpha[s])
        if alpha_t == 1:  # no noise yet: z_t is z_0
            return z0, 0.0
        variance = eta**2 * (1 - alpha_s) / (1 - alpha_t) * (1 - alpha_t / alpha_s)
        eps_scale = max(1 - alpha_s - variance, 0.0) ** 0.5
        eps = (z_t - alpha_t**0.5 * z0) / (1 - alpha_t) ** 0.5
        return alpha_s**0.5 * z0 + eps_scale * eps, variance**0.5


def normal(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw standard normal numbers with the shape, dtype and device of ``like``."""
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def nearest(z: Tensor, embeddings: Tensor) -> Tensor:
    """Round each point of ``z [..., E]`` to the id whose row of ``embeddings [V, E]`` is closest."""
    # |z - e|^2 = |z|^2 - 2 (z e - |e|^2 / 2), and |z|^2 is the same for all ids.
    bias, size = embeddings.square().sum(1) / -2, rows_at_once(z.new_empty(0, len(embeddings)))
    chunks = z.flatten(0, -2).split(size)
    return torch.cat([functional.linear(chunk, embeddings, bias).argmax(-1) for chunk in chunks]).view(z.shape[:-1])
