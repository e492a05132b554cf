"""Seq2seq discrete diffusion: the four systems of the paper, and other combinations of their parts."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.sampler import Observer, Sampler
from rdm.diffusion.likelihood import negative_log_likelihood
from rdm.errors import require
from rdm.models.denoiser import Seq2SeqDenoiser
from rdm.systems.base import Hypotheses, Likelihood
from rdm.systems.denoising import DenoisingSystem
from rdm.systems.lengths import canvas_to_fill, check_length_candidates, choose_length, length_nats
from rdm.terms import Term


class DiffusionSystem(DenoisingSystem):
    """Reads a source, predicts the length of the target, and denoises a text of that length.

    Args:
        denoiser: the network.
        length_factor: weight of the length loss (mean over sentences) added to the diffusion loss (mean over tokens).
        source_dropout: probability that a source is replaced by an empty one in training, for ``decoding.guidance``.
        parts: the other arguments of :class:`~rdm.systems.denoising.DenoisingSystem`.
    """

    denoiser: Seq2SeqDenoiser

    def __init__(
        self, denoiser: Seq2SeqDenoiser, length_factor: float = 0.01, source_dropout: float = 0.0, **parts: Any
    ) -> None:
        super().__init__(denoiser=denoiser, **parts)
        require(0 <= source_dropout < 1, f"system.source_dropout must lie in [0, 1), got {source_dropout}")
        self.length_factor, self.source_dropout = length_factor, source_dropout

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        noised = self.copies(self.process, batch.target, generator)
        memory = self.denoiser.encode(self.drop_sources(batch.source, generator))
        terms = self.objective.terms(self.denoise_in_training(memory, generator), noised, self.process, generator)
        length = length_nats(self.denoiser.length_logits(memory).float(), batch.target, self.vocab, "sum")
        return [*terms, Term("length", length, "sentences", self.length_factor)]

    def drop_sources(self, source: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return ``source [B, S]`` with each row emptied with probability ``source_dropout``; only in training mode."""
        if self.source_dropout == 0 or not self.training:
            return source
        uniform = torch.rand(len(source), device=source.device, generator=generator)
        return torch.where((uniform < self.source_dropout)[:, None], self.empty_sources(source), source)

    def empty_sources(self, source: Tensor) -> Tensor:
        """Return ``source [B, S]`` with padding after the first symbol."""
        return source.masked_fill(torch.arange(source.shape[1], device=source.device) > 0, self.vocab.pad)

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: Sampler,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        self.check_template(decoding, template)
        memory = self.denoiser.encode(source)
        length_logits = self.denoiser.length_logits(memory)
        canvas, lengths = canvas_to_fill(length_logits, decoding, self.vocab, template)
        canvas = replace(canvas, sources=source)
        unconditional = None
        if decoding.guidance != 1:
            empty = self.denoiser.encode(self.empty_sources(source))
            unconditional = self.denoise_canvas(empty, decoding, canvas)
        denoise = self.denoise_canvas(memory, decoding, canvas)
        decoded = decoding.run(self.process, denoise, canvas, generator, observer, unconditional)
        return choose_length(source, decoded, lengths, length_logits, decoding.selection, self.vocab)

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return a bound on ``-log p(length | source) - log p(text | length, source)``."""
        memory, target = self.denoiser.encode(batch.source), batch.target
        text = negative_log_likelihood(self.process, self.objective, self.denoise(memory), target, draws, generator)
        length = length_nats(self.denoiser.length_logits(memory).float(), target, self.vocab)
        ends = (target == self.vocab.bos) | (target == self.vocab.eos)
        return Likelihood(
            nats=text + length,
            tokens=(self.process.learnable(target) & ~ends).sum(1) + 1,
            kind=self.likelihood_kind(),
        )

    def check(self, decoding: Decoding) -> None:
        sampler = self.as_sampler(decoding)
        check_length_candidates(sampler, self.denoiser.max_length)
        require(
            sampler.guidance == 1 or self.source_dropout > 0,
            f"decoding.guidance={sampler.guidance} needs a run trained with system.source_dropout above 0",
        )
        require(sampler.max_tokens is None, "decoding.max_tokens: the length follows from the source; leave it out")
