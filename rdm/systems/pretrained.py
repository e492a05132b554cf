"""Fine-tuned pretrained models: GPT-2, and T5 with a latent variable (GPVAE-T5)."""

import torch

from rdm.data.batch import Batch
from rdm.errors import require
from rdm.models.pretrained import GPT2, GPVAET5, PretrainedDecoder
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.systems.base import Likelihood
from rdm.terms import Term
from rdm.vocab import Vocab


class PretrainedSystem(AutoregressiveSystem):
    """Fine-tunes a pretrained network as an autoregressive model of the target.

    Args:
        vocab: size and special ids.
        decoder: the network.
        weights: folder or Hugging Face hub name of the weights that training starts from; None trains from scratch.
        label_smoothing: share of the target mass spread over all ids except ``<pad>``, ``<mask>`` and ``<bos>``.
    """

    decoder: PretrainedDecoder

    def __init__(
        self, vocab: Vocab, decoder: PretrainedDecoder, weights: str | None = None, label_smoothing: float = 0.0
    ) -> None:
        super().__init__(vocab, decoder, label_smoothing)
        self.weights = weights

    def load_pretrained(self) -> None:
        if self.weights is not None:
            self.decoder.load(self.weights)


class GPT2System(PretrainedSystem):
    """GPT-2 on ``source <bos> target <eos>``, with a loss on the target only.

    Args:
        vocab: size and special ids.
        decoder: the network.
        weights: see :class:`PretrainedSystem`.
        label_smoothing: see :class:`PretrainedSystem`.
    """

    def __init__(self, vocab: Vocab, decoder: GPT2, weights: str | None = None, label_smoothing: float = 0.0) -> None:
        super().__init__(vocab, decoder, weights, label_smoothing)


class GPVAESystem(PretrainedSystem):
    """T5 with a latent variable per source position: cross-entropy plus ``KL(q(z | h) || p(z | h))``.

    Args:
        vocab: size and special ids.
        decoder: the network.
        weights: see :class:`PretrainedSystem`.
        label_smoothing: see :class:`PretrainedSystem`.
        divergence_factor: weight of the divergence, as a mean over source positions and latent dimensions.
    """

    decoder: GPVAET5

    def __init__(
        self,
        vocab: Vocab,
        decoder: GPVAET5,
        weights: str | None = None,
        label_smoothing: float = 0.0,
        divergence_factor: float = 1.0,
    ) -> None:
        super().__init__(vocab, decoder, weights, label_smoothing)
        require(divergence_factor >= 0, f"system.divergence_factor must be 0 or above, got {divergence_factor}")
        self.divergence_factor = divergence_factor

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        memory, nats = self.decoder.sample(batch.source, generator)
        means = nats / (memory.mask.sum(1) * memory.values.shape[2])
        return [
            Term("cross_entropy", self.cross_entropy(batch.target, memory), "next"),
            Term("divergence", means.sum(), "sentences", self.divergence_factor),
        ]

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return a bound on ``-log p(text <eos> | source)``: the mean over ``draws`` (None: 1) samples of q, and KL."""
        total = torch.zeros(len(batch.target), dtype=torch.float64, device=batch.target.device)
        for _ in range(draws or 1):
            memory, nats = self.decoder.sample(batch.source, generator)
            total += self.target_nats(batch.target, memory) + nats
        real = batch.target[:, 1:] != self.vocab.pad
        return Likelihood(total / (draws or 1), real.sum(1), kind="bound")
