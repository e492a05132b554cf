"""Discrete diffusion over open-ended text: windows of tokens that may begin with a prefix."""

from typing import Any

import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.sampler import Canvas, Observer, Sampler
from rdm.diffusion.likelihood import negative_log_likelihood
from rdm.errors import require
from rdm.models.denoiser import OpenEndedDenoiser
from rdm.systems.base import Hypotheses, Likelihood
from rdm.systems.continuation import check_prompt, truncate
from rdm.systems.denoising import DenoisingSystem
from rdm.terms import Term


class DiffusionLanguageModel(DenoisingSystem):
    """Denoises windows of text; a prefix is neither noised nor learned nor counted.

    With absorbing noise ``<eos>``, the separator of documents, is noised and learned like any other token. The other
    noises never touch special symbols, so such a model reads ``<eos>`` but never writes one.

    Args:
        denoiser: the network.
        max_tokens: maximum number of tokens in a continuation; the rest of the ``denoiser.max_length`` positions is
            discarded. More tokens than fit into the window are generated if ``decoding.block`` is set.
            ``decoding.max_tokens`` takes precedence.
        parts: the other arguments of :class:`~rdm.systems.denoising.DenoisingSystem`.
    """

    open_ended = True

    def __init__(self, denoiser: OpenEndedDenoiser, max_tokens: int = 128, **parts: Any) -> None:
        super().__init__(denoiser=denoiser, **parts)
        require(max_tokens >= 1, f"system.max_tokens must be at least 1, got {max_tokens}")
        self.max_tokens = max_tokens

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        prefix = torch.arange(batch.target.shape[1], device=batch.target.device) < batch.source.shape[1]
        noised = self.copies(self.process, batch.target, generator).keep_clean(prefix)
        return self.objective.terms(self.denoise_in_training(None, generator), noised, self.process, generator)

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return a bound on ``-log p`` of what follows the prefix, given it and symbols that are never noised."""
        target, prefix, denoise = batch.target, batch.source.shape[1], self.denoise(None)
        nats = negative_log_likelihood(self.process, self.objective, denoise, target, draws, generator, prefix)
        return Likelihood(nats, self.process.learnable(target)[:, prefix:].sum(1), self.likelihood_kind())

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
        if template is not None:
            return self._fill(source, template, decoding, generator, observer)
        window, prefix, block = self.denoiser.max_length, source.shape[1], decoding.block
        check_prompt(source, self.vocab, window)
        limit = decoding.max_tokens or self.max_tokens
        require(
            block is not None or decoding.max_tokens is None or limit <= window - prefix,
            f"decoding.max_tokens={limit}, but {window - prefix} fit into the window; set decoding.block to slide it",
        )
        canvas = self.canvas(source)
        decoded = decoding.run(self.process, self.denoise_canvas(None, decoding, canvas), canvas, generator, observer)
        tokens, calls = decoded.tokens, decoded.calls
        weighted = [decoded.scores * (window - prefix)]
        while block is not None and tokens.shape[1] - prefix < limit and not self._ended(tokens[:, prefix:]):
            # The window slides by one block: the last tokens are the prompt of the next.
            canvas = self.canvas(tokens[:, -(window - block) :])
            decoded = decoding.run(
                self.process, self.denoise_canvas(None, decoding, canvas), canvas, generator, observer
            )
            tokens, calls = torch.cat([tokens, decoded.tokens[:, -block:]], 1), calls + decoded.calls
            weighted.append(decoded.scores * block)
        scores = torch.stack(weighted).sum(0) / (tokens.shape[1] - prefix)
        rows = torch.arange(len(source), device=source.device)
        return Hypotheses(truncate(tokens[:, prefix:], self.vocab, limit), scores, rows, calls=calls)

    def _fill(
        self,
        source: Tensor,
        template: Tensor,
        decoding: Sampler,
        generator: torch.Generator | None,
        observer: Observer | None,
    ) -> Hypotheses:
        """Fill the ``<mask>`` symbols of ``template [B, N]``; the text is the whole template."""
        require(source.shape[1] == 0, "template: the text with blanks replaces the prompt of an open-ended system")
        canvas = Canvas(template, pinned=template != self.vocab.mask)
        decoded = decoding.run(self.process, self.denoise_canvas(None, decoding, canvas), canvas, generator, observer)
        return Hypotheses(decoded.tokens, decoded.scores, decoded.rows, calls=decoded.calls)

    def _ended(self, tokens: Tensor) -> bool:
        """Return whether all continuations ``[B, N]`` contain ``<eos>``, after which they are cut off."""
        return bool((tokens == self.vocab.eos).any(1).all())

    def canvas(self, source: Tensor) -> Canvas:
        """Return rows of ``denoiser.max_length`` positions that begin with ``source [B, S]``."""
        rows, prefix = source.shape
        tokens = source.new_full((rows, self.denoiser.max_length), self.vocab.mask)
        tokens[:, :prefix] = source
        pinned = torch.zeros_like(tokens, dtype=torch.bool)
        pinned[:, :prefix] = True
        return Canvas(tokens, pinned)

    def check(self, decoding: Decoding) -> None:
        sampler = self.as_sampler(decoding)
        require(
            sampler.length_candidates == 1,
            f"decoding.length_candidates={sampler.length_candidates}, but open-ended text has no lengths: use 1",
        )
        require(sampler.samples == 1, f"decoding.samples={sampler.samples}, but open-ended text is decoded once: use 1")
        require(not sampler.selection.needs_length_head, "selection: open-ended text has no length head; leave it out")
        require(sampler.guidance == 1, "decoding.guidance: open-ended text has no source to follow; use 1")
        window, block = self.denoiser.max_length, sampler.block
        require(block is None or block < window, f"decoding.block={block} must be below the window of {window} tokens")
