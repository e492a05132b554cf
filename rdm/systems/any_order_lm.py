"""Absorbing diffusion over open-ended text with a causal network, trained on every token of a window in one pass."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rdm.data.batch import Batch
from rdm.diffusion.orders import DenoisingOrder
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require
from rdm.models.any_order import OpenEndedAnyOrderDenoiser
from rdm.systems.any_order import AnyOrder
from rdm.systems.base import Likelihood
from rdm.systems.diffusion_lm import DiffusionLanguageModel
from rdm.terms import Term
from rdm.vocab import Vocab


class AnyOrderLanguageModel(AnyOrder, DiffusionLanguageModel):
    """Denoises windows of text in any order; a prefix is read first, from left to right.

    ``<eos>``, the separator of documents, is noised and learned like any other token.

    Args:
        vocab, process, denoiser, order, label_smoothing: see :class:`~rdm.systems.any_order.AnyOrder`.
        max_tokens: see :class:`~rdm.systems.diffusion_lm.DiffusionLanguageModel`.
    """

    denoiser: OpenEndedAnyOrderDenoiser  # type: ignore[assignment]

    def __init__(
        self,
        vocab: Vocab,
        process: DiffusionProcess,
        denoiser: OpenEndedAnyOrderDenoiser,
        order: DenoisingOrder,
        max_tokens: int = 128,
        label_smoothing: float = 0.0,
    ) -> None:
        parts: dict[str, Any] = {"max_tokens": max_tokens}
        super().__init__(vocab, process, denoiser, order, label_smoothing, **parts)
        require(self.objective.is_bound(process), "system=any_order_lm needs masks as noise")
        denoiser.restrict(process.noise.learnable & vocab.select(without=(vocab.bos,)))  # <bos> never occurs in text

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        return self.text_terms(*self._text(batch), None, generator)

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return ``-log p`` of what follows the prefix and is ever noised; a bound on it for random orders."""
        text, free = self._text(batch)
        return Likelihood(self.text_nats(text, free, None, draws, generator), free.sum(1), self.likelihood_kind())

    def _text(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the text after ``<bos>``, and which of its tokens are free (bool)."""
        number = torch.arange(batch.target.shape[1], device=batch.target.device)
        free = self.process.learnable(batch.target) & (number >= batch.source.shape[1])
        return self.denoiser.from_start(batch.target), functional.pad(free, (1, 0))
