"""CDCD (Dieleman et al., 2022): continuous diffusion of embeddings, trained by cross-entropy."""

import torch
from torch import Tensor

from rdm.cross_entropy import smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.euler import EulerSampler
from rdm.decoding.gaussian import Observer
from rdm.diffusion.gaussian import normal
from rdm.diffusion.warping import FIT_FACTOR, TimeWarp
from rdm.errors import UserError, require
from rdm.models.cdcd import CDCDDenoiser
from rdm.systems.base import Hypotheses
from rdm.systems.fixed_width import FixedWidthSystem
from rdm.terms import Term
from rdm.vocab import Vocab


class CDCDSystem(FixedWidthSystem):
    """Noised embeddings ``x = E(w) + t eps`` and a network that predicts the words behind them.

    Args:
        vocab: size and special ids.
        denoiser: the network.
        warp: the distribution of the noise level ``t``.
        self_conditioning: share of the training passes that read a first prediction.
    """

    denoiser: CDCDDenoiser

    def __init__(self, vocab: Vocab, denoiser: CDCDDenoiser, warp: TimeWarp, self_conditioning: float = 0.5) -> None:
        super().__init__()
        share = self_conditioning
        require(0 <= share <= 1, f"system.self_conditioning must lie in [0, 1], got {share}")
        self.vocab, self.denoiser, self.warp, self.self_conditioning = vocab, denoiser, warp, self_conditioning

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        """Return the cross-entropy of the words (mean over positions), and the misfit of the time warp to it.

        ``t`` is drawn from the warp, one level per sentence. The embeddings learn from the cross-entropy alone: as they
        are normalised, they cannot grow to escape the noise.
        """
        words, encoded = self.canvas(batch.target), self.denoiser.encode(batch.source)
        device = words.device
        t = self.warp.levels(torch.rand(len(words), device=device, generator=generator))
        clean = self.denoiser.embeddings()[words]
        x = clean + t[:, None, None] * normal(clean, generator)
        guess = None
        if float(torch.rand((), generator=generator, device=device)) < self.self_conditioning:
            with torch.no_grad():
                guess = self.denoiser.expected_embedding(self.denoiser(x, t, encoded))
        logits = self.denoiser(x, t, encoded, guess).flatten(0, 1)
        losses = smoothed_cross_entropy(logits, words.flatten(), torch.ones_like(logits[0]), 0.0)
        losses = losses.view(words.shape).mean(1)
        return [
            Term("cross_entropy", losses.sum(), "sentences"),
            Term("warp", self.warp.misfit(t, losses).sum(), "sentences", FIT_FACTOR),
        ]

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: EulerSampler,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        require(template is None, "template: CDCD cannot fill blanks, because its outputs have no fixed length")
        encoded, embeddings, noise = self.start(source, decoding, generator)
        words, logits = decoding.run(
            lambda x, t, guess: self.denoiser(x, t, encoded, guess), embeddings, noise, self.warp.levels, observer
        )
        return self.select(source, words, lambda real: logits[real], decoding.selection)

    def check(self, decoding: Decoding) -> None:
        if not isinstance(decoding, EulerSampler):
            raise UserError(f"system=cdcd needs decoding=cdcd or decoding=cdcd_mbr, not {decoding.name}")
        require(not decoding.selection.needs_length_head, "selection: CDCD has no length head; leave it out")
