"""A Gaussian-process prior over a sequence of latent vectors (GPVAE, Du et al., 2022)."""

import torch
from torch import Tensor

JITTER = 1e-4
"""Share of the variance added to the diagonal, so that equal states do not make the covariance singular."""


def covariance(states: Tensor, mask: Tensor, variance: float, length_scale: float) -> Tensor:
    """Return ``K_ij = v exp(-|h_i - h_j|^2 / (2 r^2))`` ``[B, S, S]`` in float64, the identity at padding.

    Args:
        states: ``[B, S, D]``, the inputs ``h`` of the process.
        mask: ``[B, S]`` bool, false at padding.
        variance, length_scale: ``v`` and ``r``.

    >>> covariance(torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=torch.bool), variance=2.0, length_scale=1.0)[0, 0]
    tensor([2.0002, 2.0000], dtype=torch.float64)
    """
    states = states.double()
    # By products, without a tensor [B, S, S, D]; clamped, because rounding may make equal states negative.
    squares, products = states.square().sum(-1), states @ states.mT
    distance = (squares[:, :, None] + squares[:, None] - 2 * products).clamp(min=0)
    real = mask[:, :, None] & mask[:, None]
    identity = torch.eye(states.shape[1], dtype=states.dtype, device=states.device)
    kernel = variance * ((-distance / (2 * length_scale**2)).exp() + JITTER * identity)
    return torch.where(real, kernel, identity)


def divergence(mean: Tensor, log_variance: Tensor, prior_mean: Tensor, kernel: Tensor, mask: Tensor) -> Tensor:
    """Return ``KL(N(mean, diag(exp(log_variance))) || N(prior_mean, K))`` ``[B]``, summed over latent dimensions.

    Every latent dimension is a process of its own over the ``S`` positions, all with the covariance ``K``:

        KL = 1/2 sum_d [tr(K^-1 Sigma_d) + (m_d - mu_d)^T K^-1 (m_d - mu_d) - S + log det K - log det Sigma_d]

    Args:
        mean, log_variance, prior_mean: ``[B, S, D]``.
        kernel: ``[B, S, S]`` positive definite, the identity at padding.
        mask: ``[B, S]`` bool, false at padding, which contributes nothing.
    """
    real = mask[..., None]
    difference = torch.where(real, prior_mean.double() - mean.double(), 0.0)
    log_variance = torch.where(real, log_variance.double(), 0.0)
    root = torch.linalg.cholesky(kernel.double())
    precision_diagonal = torch.cholesky_inverse(root).diagonal(dim1=1, dim2=2)
    trace = (precision_diagonal[..., None] * log_variance.exp()).sum((1, 2))
    distance = torch.linalg.solve_triangular(root, difference, upper=False).square().sum((1, 2))
    log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1) * mean.shape[2]
    size = mean.shape[1] * mean.shape[2]
    return (trace + distance - size + log_det - log_variance.sum((1, 2))) / 2
