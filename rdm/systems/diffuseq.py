"""DiffuSeq (Gong et al., 2022): Gaussian diffusion over the embeddings of the target, the source kept clean."""

import torch
from torch import Tensor
from torch.nn import functional

from rdm.data.batching import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.gaussian import GaussianSampler, Observer
from rdm.decoding.proposal import token_log_probs
from rdm.diffusion.gaussian import GaussianProcess
from rdm.diffusion.objective import smoothed_cross_entropy
from rdm.errors import UserError, require
from rdm.models.diffuseq import DiffuSeqDenoiser
from rdm.systems.base import Hypotheses, System, Term, choose
from rdm.vocab import Vocab


class DiffuSeqSystem(System):
    """A Gaussian process and a network that guesses ``z_0``.

    The target is a canvas of fixed width, ``<bos> text <eos> <pad> ...``: there is no length head, where a sentence
    ends is learned like any word. Steps are drawn uniformly (the official code prefers those of high loss).
    """

    def __init__(self, vocab: Vocab, process: GaussianProcess, denoiser: DiffuSeqDenoiser) -> None:
        super().__init__()
        self.vocab = vocab
        self.process = process
        self.denoiser = denoiser

    def canvas(self, target: Tensor) -> Tensor:
        """Targets ``[B, N]`` padded to the full width, whatever the batch."""
        return functional.pad(target, (0, self.denoiser.width - target.shape[1]), value=self.vocab.pad)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        """The bound, simplified as in the paper: means over positions, and over the numbers of a point.

            mse       |z_0 - f(z_t, t)|^2, and |E(w) - f(z_1, 1)|^2 at t = 1
            rounding  -log p(w | z_0) in both halves, which keeps the embeddings of all words apart
            tail      |sqrt(alpha_T) z_0|^2, which keeps q(z_T | z_0) near the noise that decoding starts from

        In the target half padding counts like any word. (The official code has mse and tail over the source as well.)
        """
        words = self.canvas(batch.target)
        embeddings = self.denoiser.tokens(words)
        z0 = self.process.points(embeddings, generator)
        t = torch.randint(1, self.process.num_steps + 1, words.shape[:1], device=words.device, generator=generator)
        guess = self.denoiser(self.process.corrupt(z0, t, generator), t, self.denoiser.read(batch.source))
        goal = torch.where((t == 1)[:, None, None], embeddings, z0)
        return [
            Term("mse", (guess - goal).square().mean((1, 2)).sum(), "sentences"),
            Term("rounding", self._rounding(batch.source, words, z0), "sentences"),
            Term("tail", self.process.alpha[-1].to(z0.dtype) * z0.square().mean((1, 2)).sum(), "sentences"),
        ]

    def _rounding(self, source: Tensor, words: Tensor, z0: Tensor) -> Tensor:
        """``-log p(w | z_0)``, the sum over sentences of the mean over words; the source is not noised at all."""
        points = torch.cat([self.denoiser.tokens(source), z0], 1)
        everything = torch.cat([source, words], 1)
        logits, ids = self.denoiser.logits(points).flatten(0, 1), everything.flatten()
        losses = smoothed_cross_entropy(logits, ids, torch.ones_like(logits[0]), smoothing=0.0).view(everything.shape)
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
        require(template is None, "template: DiffuSeq writes a sentence of any length and cannot fill blanks")
        given = self.denoiser.read(source.repeat_interleave(decoding.samples, 0))
        embeddings = self.denoiser.tokens.weight
        shape = (len(given.states), self.denoiser.width, embeddings.shape[1])
        noise = torch.randn(shape, device=source.device, generator=generator)
        words, guess = decoding.run(
            self.process, lambda z, t: self.denoiser(z, t, given), embeddings, noise, generator, observer
        )
        real = self.until_eos(words)
        scored = token_log_probs(self.denoiser.logits(guess[real]), words[real])
        scores = torch.zeros(real.shape, device=real.device).masked_scatter(real, scored).sum(1) / real.sum(1)
        words = torch.where(real, words, self.vocab.pad)
        return choose(words, scores, len(source), decoding.selection, self.vocab)

    def until_eos(self, words: Tensor) -> Tensor:
        """``[R, N]`` bool: up to the first ``<eos>`` and with it."""
        ends = words == self.vocab.eos
        return ends.long().cumsum(1) - ends.long() == 0

    def check(self, decoding: Decoding) -> None:
        if not isinstance(decoding, GaussianSampler):
            raise UserError(f"system=diffuseq needs decoding=diffuseq or decoding=diffuseq_ddim, not {decoding.name}")
        steps, trained = decoding.steps, self.process.num_steps
        require(
            steps <= trained,
            f"decoding.steps={steps} is more than the system.process.schedule.num_steps={trained} trained with",
        )
