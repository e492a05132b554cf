"""DiffuSeq (Gong et al., 2022): Gaussian diffusion over target embeddings with a clean source."""

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.gaussian import GaussianSampler, Observer
from rdm.diffusion.gaussian import GaussianProcess
from rdm.diffusion.step_importance import StepImportance, UniformSteps
from rdm.diffusion.warping import FIT_FACTOR
from rdm.errors import UserError, require
from rdm.models.diffuseq import DiffuSeqDenoiser
from rdm.systems.base import Hypotheses
from rdm.systems.fixed_width import FixedWidthSystem
from rdm.terms import Term
from rdm.vocab import Vocab


class DiffuSeqSystem(FixedWidthSystem):
    """A Gaussian process and a network that predicts ``z_0``.

    The target is a canvas of fixed width, ``<bos> text <eos> <pad> ...``. There is no length head: the end of a
    sentence is learned like any word.

    Args:
        vocab: size and special ids.
        process: the forward process.
        denoiser: the network, which says how often it reads a first prediction in training (self-conditioning).
        steps: how the steps of a batch are drawn; by default uniformly.
        anchor: weight of the cross-entropy of the words under the *predicted* ``z_0`` (the anchor loss of Difformer; 0
            in DiffuSeq). The squared error alone tells the network little about which word is right.
    """

    denoiser: DiffuSeqDenoiser

    def __init__(
        self,
        vocab: Vocab,
        process: GaussianProcess,
        denoiser: DiffuSeqDenoiser,
        steps: StepImportance | None = None,
        anchor: float = 0.0,
    ) -> None:
        super().__init__()
        require(anchor >= 0, f"system.anchor must be 0 or above, got {anchor}")
        self.vocab = vocab
        self.process = process
        self.denoiser = denoiser
        self.steps = steps or UniformSteps()
        self.anchor = anchor

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        """Return the terms of the bound, simplified as in the paper: means over positions and dimensions.

            mse       |z_0 - f(z_t, t)|^2, and |E(w) - f(z_1, 1)|^2 at t = 1
            rounding  -log p(w | z_0) in both halves; it keeps the embeddings of different words apart
            anchor    -log p(w | f(z_t, t)) in the target half, only if its weight is not 0
            steps     misfit of the distribution of the steps, if it is fitted to the loss
            tail      |sqrt(alpha_T) z_0|^2; it keeps q(z_T | z_0) close to the noise that decoding starts from

        In the target half padding counts like any word. The official code has mse and tail over the source as well.
        """
        words = self.canvas(batch.target)
        embeddings = self.denoiser.tokens(words)
        z0 = self.process.points(embeddings, generator)
        uniform = torch.rand(len(words), device=words.device, generator=generator)
        t, weights = self.steps.draw(uniform, self.process.num_steps)
        prediction = self._predict(self.process.corrupt(z0, t, generator), t, batch.source, generator)
        goal = torch.where((t == 1)[:, None, None], embeddings, z0)
        errors = (prediction - goal).square().mean((1, 2))
        terms = [
            Term("mse", (weights * errors).sum(), "sentences"),
            Term("rounding", self._rounding(batch.source, words, z0), "sentences"),
            Term("tail", self.process.alpha[-1].to(z0.dtype) * z0.square().mean((1, 2)).sum(), "sentences"),
        ]
        if self.anchor > 0:
            losses = self._word_losses(prediction, words).mean(1)
            terms.append(Term("anchor", (weights * losses).sum(), "sentences", self.anchor))
        misfit = self.steps.misfit(t, errors, self.process.num_steps)
        if misfit is not None:
            terms.append(Term("steps", misfit.sum(), "sentences", FIT_FACTOR))
        return terms

    def _predict(self, z_t: Tensor, t: Tensor, source: Tensor, generator: torch.Generator | None) -> Tensor:
        """Predict ``z_0 [B, N, E]``, in a share of the batches from a first prediction, which gets no gradient."""
        encoded, guess, share = self.denoiser.encode(source), None, self.denoiser.self_conditioning
        if share > 0 and float(torch.rand((), generator=generator, device=z_t.device)) < share:
            with torch.no_grad():
                guess = self.denoiser(z_t, t, encoded)
        return self.denoiser(z_t, t, encoded, guess)

    def _word_losses(self, points: Tensor, words: Tensor) -> Tensor:
        """Return ``-log p(w | z)`` ``[B, N]`` for points ``[B, N, E]``."""
        logits = self.denoiser.logits(points).flatten(0, 1)
        return smoothed_cross_entropy(logits, words.flatten(), torch.ones_like(logits[0]), 0.0).view(words.shape)

    def _rounding(self, source: Tensor, words: Tensor, z0: Tensor) -> Tensor:
        """Return ``-log p(w | z_0)``, summed over sentences, averaged over words; the source is not noised."""
        points = torch.cat([self.denoiser.tokens(source), z0], 1)
        losses = self._word_losses(points, torch.cat([source, words], 1))
        real = functional.pad(source != self.vocab.pad, (0, words.shape[1]), value=True)
        return (torch.where(real, losses, 0.0).sum(1) / real.sum(1)).sum()

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: GaussianSampler,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        require(template is None, "template: DiffuSeq cannot fill blanks, because its outputs have no fixed length")
        encoded, embeddings, noise = self.start(source, decoding, generator)
        words, prediction = decoding.run(
            self.process,
            lambda z, t, guess: self.denoiser(z, t, encoded, guess),
            embeddings,
            noise,
            generator,
            observer,
        )
        return self.select(source, words, lambda real: self.denoiser.logits(prediction[real]), decoding.selection)

    def check(self, decoding: Decoding) -> None:
        if not isinstance(decoding, GaussianSampler):
            raise UserError(f"system=diffuseq needs decoding=diffuseq or decoding=diffuseq_ddim, not {decoding.name}")
        require(not decoding.selection.needs_length_head, "selection: DiffuSeq has no length head; leave it out")
        steps, trained = decoding.steps, self.process.num_steps
        require(
            steps <= trained,
            f"decoding.steps={steps} is more than the system.process.schedule.num_steps={trained} trained with",
        )
