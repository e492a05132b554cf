"""The variational bound on the negative log-likelihood of a sentence.

    -log p(x_0) <= KL(q(x_T | x_0) || q_noise) + sum_{t=1}^T E_{q(x_t | x_0)} L_t(x_t)

``L_t`` is the divergence of the posteriors; for absorbing noise it is the cross-entropy with the original weight. It
does not depend on the weights the model was trained with.
"""

import torch
from torch import Tensor

from rdm.diffusion.noised import Denoise, NoisedBatch
from rdm.diffusion.objective import Objective
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.steps import UniformSteps


def negative_log_likelihood(
    process: DiffusionProcess,
    objective: Objective,
    denoise: Denoise,
    x0: Tensor,
    draws: int | None = None,
    generator: torch.Generator | None = None,
    prefix: int = 0,
) -> Tensor:
    """Return an unbiased estimate of the bound in nats for each sentence: ``[B]``, float64.

    Args:
        process: the forward process.
        objective: its ``unweighted`` form gives ``L_t``.
        denoise: the network, bound to its sources.
        x0: ``[B, N]`` clean tokens.
        draws: number of steps drawn for each sentence, each with a draw of ``x_t``; None visits every step once, so
            that only ``x_t`` is random.
        generator: source of randomness.
        prefix: the first ``prefix`` tokens are given: the bound is that of the others, conditioned on them.
    """
    objective = objective.unweighted()
    learnable = process.learnable(x0)
    given = torch.arange(x0.shape[1], device=x0.device) < prefix
    total = torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    for number in range(draws or process.num_steps):
        t = torch.full_like(x0[:, 0], number + 1) if draws is None else UniformSteps()(process, x0, generator)
        noised = NoisedBatch(x0=x0, x_t=process.corrupt(x0, t, generator), t=t, learnable=learnable).keep_clean(given)
        positions = objective.positions(noised)
        logits = denoise(noised.x_t, process.network_steps(t, noised.noisy), positions)
        losses = torch.zeros(x0.shape, dtype=torch.float64, device=x0.device)
        losses[positions] = objective.losses(logits, noised.at(positions), process).double()
        total += losses.sum(1)
    return total * (process.num_steps / (draws or process.num_steps)) + process.prior_divergence(x0)[:, prefix:].sum(1)
