"""Objectives of masked language models that learn to correct their own predictions: SMART and CMLMC.

Both run a pass without gradient first and train on its argmax. ``N`` is the number of learnable tokens of a sentence.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rdm.cross_entropy import smoothed_cross_entropy
from rdm.diffusion.copies import NoisedCopies
from rdm.diffusion.noised import Denoise, NoisedBatch
from rdm.diffusion.objective import ReweightedCrossEntropy
from rdm.diffusion.passes import all_noise, predict
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Constant
from rdm.errors import require
from rdm.masks import random_subset
from rdm.terms import Term


class Smart(ReweightedCrossEntropy):
    """Semi-autoregressive training of Mask-Predict (Ghazvininejad et al., 2020): every position is predicted again.

        y'   = argmax f(x_t) at all N positions                     no gradient
        loss = - sum_n log f_n(y0_n | y' masked again)              masked or not: observed tokens may be wrong

    Args:
        copies: draws the masks of the second pass.
        label_smoothing: share of the target mass spread over the ids that the model may predict.

    >>> from rdm.diffusion.copies import UniformMasks
    >>> Smart(UniformMasks()).describe()
    {'class': 'Smart', 'copies': {'class': 'UniformMasks'}, 'label_smoothing': 0.1}
    """

    def __init__(self, copies: NoisedCopies, label_smoothing: float = 0.1) -> None:
        super().__init__(Constant(), label_smoothing)
        self.copies = copies

    def terms(
        self, denoise: Denoise, noised: NoisedBatch, process: DiffusionProcess, generator: torch.Generator | None = None
    ) -> list[Term]:
        positions = noised.learnable.nonzero(as_tuple=True)  # the only device synchronisation of the step
        own = predict(denoise, noised, process, positions)
        draws = self.copies.draw(process, own, generator)
        total = torch.zeros((), device=own.device)
        for x_t, t in draws:
            logits = denoise(x_t, process.network_steps(t, x_t != own), positions)
            x0 = noised.x0[positions]
            total = total + smoothed_cross_entropy(logits, x0, process.noise.learnable, self.label_smoothing).sum()
        return [Term("diffusion", total / (len(draws) * noised.copies), process.noise.unit)]


class MaskAndCorrect(ReweightedCrossEntropy):
    """The loss of CMLMC (Huang et al., 2022): predict masked tokens, and correct own predictions among the others.

        L_mask = - sum over masked n of log f_n(y0_n | x_t)
        y_hat  = argmax f(all masked)                                no gradient
        L_corr = - sum over replaced n of log f_n(y0_n | x_t with y_hat at a random share of the revealed positions)

    The paper averages each over its own positions and takes the mean of both. A term here has a denominator that does
    not depend on the random draw, ``N``; half of the positions are masked on average, so ``L_mask + L_corr / share``
    divided by ``N`` has these weights.

    Args:
        replaced: share of the revealed tokens that are replaced, rounded down.
        label_smoothing: share of the target mass spread over the ids that the model may predict.

    >>> MaskAndCorrect().describe()
    {'class': 'MaskAndCorrect', 'replaced': 0.3, 'label_smoothing': 0.1}
    """

    def __init__(self, replaced: float = 0.3, label_smoothing: float = 0.1) -> None:
        super().__init__(Constant(), label_smoothing)
        require(0 < replaced <= 1, f"diffusion.objective.replaced must lie in (0, 1], got {replaced}")
        self.replaced = replaced

    def terms(
        self, denoise: Denoise, noised: NoisedBatch, process: DiffusionProcess, generator: torch.Generator | None = None
    ) -> list[Term]:
        (masked,) = super().terms(denoise, noised, process, generator)
        chosen = self.choose_replaced(noised, generator)
        guess = predict(denoise, all_noise(noised, process), process, noised.learnable.nonzero(as_tuple=True))
        mixed = replace(noised, x_t=torch.where(chosen, guess, noised.x_t))
        positions = chosen.nonzero(as_tuple=True)
        logits = denoise(mixed.x_t, process.network_steps(mixed.t, noised.noisy), positions)
        losses = self.losses(logits, mixed.at(positions), process)
        return [
            masked,
            Term("correction", losses.sum() / noised.copies, process.noise.unit, factor=1 / self.replaced),
        ]

    def choose_replaced(self, noised: NoisedBatch, generator: torch.Generator | None) -> Tensor:
        """Draw the revealed positions ``[R, N]`` (bool) that are replaced."""
        revealed = noised.learnable & ~noised.noisy
        count = (self.replaced * revealed.sum(1)).long()
        uniform = torch.rand(revealed.shape, dtype=torch.float64, device=revealed.device, generator=generator)
        return random_subset(uniform, revealed, count)
