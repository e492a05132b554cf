"""Discrete diffusion over open-ended text: a window of tokens of which the first may be given."""

import torch
from torch import Tensor

from rdm.data.batching import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.sampler import Canvas, Observer, Sampler
from rdm.diffusion.likelihood import negative_log_likelihood
from rdm.diffusion.objective import Objective
from rdm.diffusion.pairing import Pairing
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require
from rdm.models.decoder_only import DecoderOnly
from rdm.systems.base import Hypotheses, Likelihood, Term
from rdm.systems.continuation import check_prompt, cut
from rdm.systems.denoising import DenoisingSystem
from rdm.vocab import Vocab


class DiffusionLanguageModel(DenoisingSystem):
    """A denoiser of windows; the given prefix is neither noised nor learned nor counted.

    Under absorbing noise ``<eos>``, which stands between documents, is noised and learned like any other token. The
    other noises leave special symbols alone, so such a model sees ``<eos>`` but never writes one.

    Args:
        max_tokens: most tokens of a continuation; what else the ``denoiser.max_length`` positions hold is cut off.
    """

    denoiser: DecoderOnly

    open_ended = True

    def __init__(
        self,
        vocab: Vocab,
        process: DiffusionProcess,
        pairing: Pairing,
        objective: Objective,
        denoiser: DecoderOnly,
        max_tokens: int = 128,
    ) -> None:
        super().__init__(vocab, process, pairing, objective, denoiser)
        require(max_tokens >= 1, f"system.max_tokens must be at least 1, got {max_tokens}")
        self.max_tokens = max_tokens

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        given = torch.arange(batch.target.shape[1], device=batch.target.device) < batch.source.shape[1]
        corruption = self.pairing(self.process, batch.target, generator).keep_clean(given)
        return [self.diffusion_term(corruption, None, len(batch.target))]

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """A bound on ``-log p`` of a whole window; special symbols that are never noised are given."""
        require(batch.source.shape[1] == 0, "the likelihood is that of whole windows: nothing can be given")
        target = batch.target
        nats = negative_log_likelihood(self.process, self.objective, self._denoise(None), target, draws, generator)
        return Likelihood(nats, self.process.learnable(target).sum(1), self.likelihood_kind())

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: Sampler,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        require(template is None, "template: open-ended text has no targets with blanks")
        check_prompt(source, self.vocab, self.denoiser.max_length)
        decoded = decoding.run(self.process, self._denoise(None), self.canvas(source), generator, observer)
        continuation = cut(decoded.tokens[:, source.shape[1] :], self.vocab, self.max_tokens)
        rows = torch.arange(len(source), device=source.device)
        return Hypotheses(continuation, decoded.scores, rows, calls=decoded.calls)

    def canvas(self, source: Tensor) -> Canvas:
        """Rows of ``denoiser.max_length`` positions that begin with ``source [B, S]``."""
        rows, given = source.shape
        tokens = source.new_full((rows, self.denoiser.max_length), self.vocab.mask)
        tokens[:, :given] = source
        pinned = torch.zeros_like(tokens, dtype=torch.bool)
        pinned[:, :given] = True
        return Canvas(tokens, pinned)

    def check(self, decoding: Decoding) -> None:
        sampler = self.as_sampler(decoding)
        require(
            sampler.length_candidates == 1,
            f"decoding.length_candidates={sampler.length_candidates}, but open-ended text has no lengths: use 1",
        )
        require(sampler.samples == 1, f"decoding.samples={sampler.samples}, but open-ended text is decoded once: use 1")
