"""Objectives with a second pass of the network, on an input that its own prediction decides."""

from dataclasses import replace

import torch
from torch import Tensor

from rdm.cross_entropy import Logits, compute_logits
from rdm.diffusion.noised import Denoise, NoisedBatch
from rdm.diffusion.objective import ReweightedCrossEntropy
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Reweighting
from rdm.errors import require
from rdm.masks import random_subset
from rdm.terms import Term


class OwnPredictions(ReweightedCrossEntropy):
    """Adds a pass on the model's own prediction, with a loss at all learnable positions (SUNDAE, ProSeCo).

    The first pass is the usual one. Its prediction replaces the noisy tokens; the second pass reads the result at the
    same step and is asked for the clean text everywhere. It learns to correct wrong tokens, and to score tokens that
    are not noise, which routers that send tokens back rely on. No gradient flows through the prediction.

    Args:
        reweighting: weight of the step, in both passes.
        label_smoothing: in both passes.
        temperature: 0 takes the most likely tokens (ProSeCo), 1 draws from the prediction (SUNDAE).
        factor: weight of the second pass.

    >>> from rdm.diffusion.reweighting import Linear
    >>> OwnPredictions(Linear(), temperature=0).factor
    1.0
    """

    def __init__(
        self,
        reweighting: Reweighting,
        label_smoothing: float = 0.1,
        temperature: float = 1.0,
        factor: float = 1.0,
    ) -> None:
        require(temperature >= 0, f"diffusion.objective.temperature must be 0 or above, got {temperature}")
        require(factor > 0, f"diffusion.objective.factor must be above 0, got {factor}")
        super().__init__(reweighting, label_smoothing)
        self.temperature, self.factor = temperature, factor

    def terms(
        self, denoise: Denoise, noised: NoisedBatch, process: DiffusionProcess, generator: torch.Generator | None = None
    ) -> list[Term]:
        # The only device synchronisation of the step: noisy positions are found among the learnable ones.
        learnable = noised.learnable.nonzero(as_tuple=True)
        steps = process.network_steps(noised.t, noised.noisy)
        logits, at = denoise(noised.x_t, steps, learnable), noised.at(learnable)
        noisy = at.x_t != at.x0
        first = self.losses(logits, at, process) * noisy
        predicted = torch.where(noisy, draw(logits.detach(), self.temperature, generator), at.x0)
        own = replace(noised, x_t=noised.x_t.index_put(learnable, predicted))
        second = self.losses(denoise(own.x_t, steps, learnable), own.at(learnable), process)
        return [
            Term("diffusion", first.sum() / noised.copies, process.noise.unit),
            Term("own_predictions", second.sum() / noised.copies, process.noise.unit, self.factor),
        ]


class Glancing(ReweightedCrossEntropy):
    """Reveals as many clean tokens as the model gets wrong from noise alone, and learns the others (GLAT).

    A first pass without gradient reads noise everywhere. If it predicts ``w`` of the learnable tokens of a row wrongly,
    ``floor(ratio * w)`` random ones are revealed; the loss is the cross-entropy of the rest. The second pass gets the
    step at which the schedule keeps as large a share. The noise drawn by ``diffusion/pairing`` is not used.

    Args:
        reweighting: weight of the step of the second pass.
        label_smoothing: see :class:`~rdm.diffusion.objective.ReweightedCrossEntropy`.
        ratio: of revealed to wrong tokens.

    >>> from rdm.diffusion.reweighting import Constant
    >>> Glancing(Constant()).ratio
    0.5
    """

    def __init__(self, reweighting: Reweighting, label_smoothing: float = 0.1, ratio: float = 0.5) -> None:
        require(0 <= ratio <= 1, f"diffusion.objective.ratio must lie in [0, 1], got {ratio}")
        super().__init__(reweighting, label_smoothing)
        self.ratio = ratio

    def terms(
        self, denoise: Denoise, noised: NoisedBatch, process: DiffusionProcess, generator: torch.Generator | None = None
    ) -> list[Term]:
        x0, learnable = noised.x0, noised.learnable
        positions = learnable.nonzero(as_tuple=True)  # the only device synchronisation of the step
        start = all_noise(noised, process, generator)
        count = (self.ratio * (predict(denoise, start, process, positions) != x0).sum(1)).floor()
        uniform = torch.rand(x0.shape, dtype=torch.float64, device=x0.device, generator=generator)
        revealed = random_subset(uniform, learnable, count)
        kept = count.double() / learnable.sum(1).clamp(min=1)
        glanced = replace(noised, x_t=torch.where(revealed, x0, start.x_t), t=process.step_keeping(kept))
        steps = process.network_steps(glanced.t, glanced.noisy)
        losses = self.losses(denoise(glanced.x_t, steps, positions), glanced.at(positions), process)
        return [Term("diffusion", (losses * ~revealed[positions]).sum() / noised.copies, process.noise.unit)]


@torch.no_grad()
def predict(denoise: Denoise, noised: NoisedBatch, process: DiffusionProcess, positions: tuple[Tensor, ...]) -> Tensor:
    """Return ``x_t`` with the argmax of the denoiser at ``positions``, without a gradient."""
    steps = process.network_steps(noised.t, noised.noisy)
    return noised.x_t.index_put(positions, denoise(noised.x_t, steps, positions).argmax(-1))


def all_noise(noised: NoisedBatch, process: DiffusionProcess, generator: torch.Generator | None = None) -> NoisedBatch:
    """Return the batch at the last step, with noise at all learnable positions.

    >>> from rdm.diffusion.noise import Absorbing
    >>> from rdm.diffusion.schedule import Linear
    >>> from rdm.vocab import Vocab
    >>> x0 = torch.tensor([[2, 5, 6, 3]])
    >>> noised = NoisedBatch(x0, x0, torch.tensor([1]), learnable=x0 > 4)
    >>> all_noise(noised, DiffusionProcess(Linear(num_steps=4), Absorbing(Vocab(size=7)))).x_t
    tensor([[2, 1, 1, 3]])
    """
    noise = process.noise.sample(noised.x0, generator)
    last = torch.full_like(noised.t, process.num_steps)
    return replace(noised, x_t=torch.where(noised.learnable, noise, noised.x0), t=last)


def draw(logits: Logits, temperature: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw ids ``[P]`` from ``softmax(logits [P, V] / temperature)``; the most likely ones at temperature 0."""
    if temperature == 0 or not len(logits):
        return logits.argmax(-1)
    probs = (compute_logits(logits).float() / temperature).softmax(-1)
    return torch.multinomial(probs, 1, generator=generator).squeeze(1)
