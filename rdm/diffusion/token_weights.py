"""Objectives that weight the cross-entropy of each token by how well the model predicts it."""

import torch
from torch import Tensor

from rdm.cross_entropy import Logits, smoothed_cross_entropy
from rdm.diffusion.noised import Denoise, NoisedBatch
from rdm.diffusion.objective import ReweightedCrossEntropy
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Reweighting
from rdm.errors import require
from rdm.terms import Term


class FocalCrossEntropy(ReweightedCrossEntropy):
    """``lambda_{t-1} * scale * (1 - p)^gamma * (- log p)``, ``p`` the probability of the clean token (MGDM).

    Tokens that the model predicts well already count less. The gradient includes that of the factor, and there is no
    label smoothing.

    Args:
        reweighting: weight of the step.
        gamma: 0 is the cross-entropy.
        scale: of the whole loss; it matters relative to the length loss only.

    >>> from rdm.diffusion.reweighting import Linear
    >>> FocalCrossEntropy(Linear(), gamma=1.0).describe()
    {'class': 'FocalCrossEntropy', 'reweighting': {'class': 'Linear'}, 'gamma': 1.0, 'scale': 0.25}
    """

    def __init__(self, reweighting: Reweighting, gamma: float = 2.0, scale: float = 0.25) -> None:
        require(gamma >= 0, f"diffusion.objective.gamma must be 0 or above, got {gamma}")
        require(scale > 0, f"diffusion.objective.scale must be above 0, got {scale}")
        super().__init__(reweighting, label_smoothing=0.0)
        self.gamma, self.scale = gamma, scale

    def losses(self, logits: Logits, noised: NoisedBatch, process: DiffusionProcess) -> Tensor:
        loss = smoothed_cross_entropy(logits, noised.x0, process.noise.learnable, 0.0)
        # The clamp: the gradient of x ** gamma at 0 is not finite for gamma < 1.
        wrong = (-torch.expm1(-loss)).clamp(min=1e-6)
        weight = self.scale * self.reweighting.weight(noised.t, process.schedule).to(loss.dtype)
        return weight * wrong**self.gamma * loss


class PathWeightedCrossEntropy(ReweightedCrossEntropy):
    """Cross-entropy with the weight ``1 + strength * softmax_n(log p_n / temperature)`` (PAPL).

    The softmax is over the noisy tokens of a row, and ``p_n`` is the probability of the clean token. A decoder that
    denoises the most confident tokens first takes paths through them, so they count more. No gradient flows through the
    weights.

    Args:
        reweighting: weight of the step.
        label_smoothing: see :class:`~rdm.diffusion.objective.ReweightedCrossEntropy`.
        strength: 0 is the cross-entropy.
        temperature: of the softmax.

    >>> from rdm.diffusion.reweighting import Linear
    >>> PathWeightedCrossEntropy(Linear()).strength
    1.0
    """

    def __init__(
        self,
        reweighting: Reweighting,
        label_smoothing: float = 0.1,
        strength: float = 1.0,
        temperature: float = 1.0,
    ) -> None:
        require(strength >= 0, f"diffusion.objective.strength must be 0 or above, got {strength}")
        require(temperature > 0, f"diffusion.objective.temperature must be above 0, got {temperature}")
        super().__init__(reweighting, label_smoothing)
        self.strength, self.temperature = strength, temperature

    def terms(
        self, denoise: Denoise, noised: NoisedBatch, process: DiffusionProcess, generator: torch.Generator | None = None
    ) -> list[Term]:
        positions = self.positions(noised).nonzero(as_tuple=True)  # the only device synchronisation of the step
        steps = process.network_steps(noised.t, noised.noisy)
        logits, at = denoise(noised.x_t, steps, positions), noised.at(positions)
        losses = self.losses(logits, at, process)
        with torch.no_grad():
            log_probs = -smoothed_cross_entropy(logits.detach(), at.x0, process.noise.learnable, 0.0)
            weights = 1 + self.strength * softmax_by_row(log_probs / self.temperature, positions[0], len(noised.x0))
        return [Term("diffusion", (weights * losses).sum() / noised.copies, process.noise.unit)]


def softmax_by_row(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Return the softmax ``[P]`` of ``values [P]`` over those with the same of ``count`` rows.

    >>> softmax_by_row(torch.tensor([0.0, 0.0, 5.0]), torch.tensor([0, 0, 2]), count=3)
    tensor([0.5000, 0.5000, 1.0000])
    """
    largest = values.new_full((count,), float("-inf")).scatter_reduce(0, rows, values, "amax")
    exponentials = (values - largest[rows]).exp()
    return exponentials / values.new_zeros(count).index_add(0, rows, exponentials)[rows]
