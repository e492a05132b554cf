"""The base of diffusions over embeddings: targets of a fixed width in which padding is a word like any other."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from rdm.decoding.candidates import Selection
from rdm.decoding.gaussian import PointDecoding
from rdm.decoding.proposal import token_log_probs
from rdm.models.diffuseq import EncodedSource, PointTransformer
from rdm.systems.base import Hypotheses, System, choose


class FixedWidthSystem(System):
    """A target is ``<bos> text <eos> <pad> ...``. There is no length head: the end of a text is learned like a word."""

    denoiser: PointTransformer

    def canvas(self, target: Tensor) -> Tensor:
        """Pad targets ``[B, N]`` to the full width."""
        return functional.pad(target, (0, self.denoiser.width - target.shape[1]), value=self.vocab.pad)

    def start(
        self, source: Tensor, decoding: PointDecoding, generator: torch.Generator | None
    ) -> tuple[EncodedSource, Tensor, Tensor]:
        """Return what decoding starts from: one encoded source per candidate, the embeddings ``[V, E]``, and noise."""
        encoded = self.denoiser.encode(source.repeat_interleave(decoding.samples, 0))
        embeddings = self.denoiser.embeddings()
        shape = (len(encoded.states), self.denoiser.width, embeddings.shape[1])
        return encoded, embeddings, torch.randn(shape, device=source.device, generator=generator)

    def until_eos(self, words: Tensor) -> Tensor:
        """Return a mask ``[R, N]`` of the words up to and including the first ``<eos>``."""
        ends = words == self.vocab.eos
        return ends.long().cumsum(1) - ends.long() == 0

    def select(
        self, source: Tensor, words: Tensor, logits_at: Callable[[Tensor], Tensor], selection: Selection
    ) -> Hypotheses:
        """Score decoded words by their mean log-probability and select one candidate for each source.

        Args:
            source: ``[B, S]`` sources.
            words: ``[B * m, N]`` candidates, those of a source consecutive.
            logits_at: returns the logits ``[P, V]`` at a mask ``[B * m, N]``.
            selection: chooses among the candidates of a source.
        """
        real = self.until_eos(words)
        scored = token_log_probs(logits_at(real), words[real])
        scores = torch.zeros(real.shape, device=real.device).masked_scatter(real, scored).sum(1) / real.sum(1)
        return choose(source, torch.where(real, words, self.vocab.pad), scores, selection, self.vocab)
