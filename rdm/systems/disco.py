"""DisCo (Kasai et al., 2020): a Transformer that predicts every token from its own random set of other tokens."""

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.easy_first import EasyFirst, Observer, visible_before
from rdm.errors import UserError, require
from rdm.masks import random_subset
from rdm.models.disco import DisCoDenoiser
from rdm.systems.base import Hypotheses, Likelihood, System
from rdm.systems.denoising import ActiveRows
from rdm.systems.lengths import canvas_to_fill, check_length_candidates, choose_length, length_nats
from rdm.terms import Term
from rdm.vocab import Vocab


class DisCoSystem(System):
    """Reads a source, predicts the length of the target, and all its tokens from sets of other tokens.

    Args:
        vocab: size and special ids.
        denoiser: the network.
        length_factor: weight of the length loss (mean over sentences) added to the loss (mean over tokens).
        label_smoothing: share of the target mass spread over the ordinary ids.
    """

    predictable: Tensor

    def __init__(
        self, vocab: Vocab, denoiser: DisCoDenoiser, length_factor: float = 0.01, label_smoothing: float = 0.1
    ) -> None:
        super().__init__()
        require(0 <= label_smoothing < 1, f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.vocab, self.denoiser = vocab, denoiser
        self.length_factor, self.label_smoothing = length_factor, label_smoothing
        self.register_buffer("predictable", vocab.select(without=vocab.specials))
        denoiser.restrict(self.predictable)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        target, memory = batch.target, self.denoiser.encode(batch.source)
        visible = self.draw_visible(target, generator)
        positions = self.vocab.is_ordinary(target).nonzero(as_tuple=True)
        logits = self.denoiser(target, visible, memory, positions)
        losses = smoothed_cross_entropy(logits, target[positions], self.predictable, self.label_smoothing)
        length_loss = length_nats(self.denoiser.length_logits(memory).float(), target, self.vocab, "sum")
        return [
            Term("cross_entropy", losses.sum(), "ordinary"),
            Term("length", length_loss, "sentences", self.length_factor),
        ]

    def draw_visible(self, target: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw what each position of ``target [B, N]`` sees: ``[B, N, N]`` bool.

        Position n sees ``floor(r_n L)`` of the ``L - 1`` other ordinary tokens, ``r_n ~ U(0, 1)``, and always the
        special symbols of the row, but never itself or padding. No other token and all others are equally likely.
        """
        ordinary = self.vocab.is_ordinary(target)
        uniform = torch.rand(
            *target.shape, target.shape[1] + 1, dtype=torch.float64, device=target.device, generator=generator
        )
        count = (uniform[..., -1] * ordinary.sum(1, keepdim=True)).long()
        itself = torch.eye(target.shape[1], dtype=torch.bool, device=target.device)
        others = ordinary[:, None] & ~itself
        return random_subset(uniform[..., :-1], others, count) | self._given(target)[:, None]

    def _given(self, target: Tensor) -> Tensor:
        """Special symbols, which are never predicted: ``[B, N]`` bool."""
        return ~self.vocab.is_ordinary(target) & (target != self.vocab.pad)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Add the ``ordinary`` tokens (no special symbols)."""
        return {**super().counts(batch), "ordinary": self.vocab.is_ordinary(batch.target).sum()}

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return ``-log p(length | source) - sum_n log p(y_n | y_1 .. y_{n-1}, length, source)``, exact, in one pass.

        Any order of the tokens gives a normalised distribution; this is the one from left to right. ``draws`` is not
        used. ``<unk>`` in a target is given, as in decoding, where it cannot be produced.
        """
        target, memory = batch.target, self.denoiser.encode(batch.source)
        ordinary = self.vocab.is_ordinary(target)
        order = torch.arange(target.shape[1], device=target.device).expand_as(target)
        visible = visible_before(order, ordinary) | self._given(target)[:, None]
        nats = torch.zeros(target.shape, dtype=torch.float64, device=target.device)
        logits = self.denoiser(target, visible, memory, ordinary)
        nats[ordinary] = functional.cross_entropy(logits.double(), target[ordinary], reduction="none")
        length = length_nats(self.denoiser.length_logits(memory).double(), target, self.vocab)
        return Likelihood(nats.sum(1) + length, ordinary.sum(1) + 1, kind="exact")

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: EasyFirst,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        memory = self.denoiser.encode(source)
        length_logits = self.denoiser.length_logits(memory)
        canvas, lengths = canvas_to_fill(length_logits, decoding, self.vocab, template)
        decoded = decoding.run(ActiveRows(self.denoiser, memory), canvas, self.vocab.pad, observer)
        return choose_length(source, decoded, lengths, length_logits, decoding.selection, self.vocab)

    def check(self, decoding: Decoding) -> None:
        if not isinstance(decoding, EasyFirst):
            raise UserError(f"system=disco needs decoding=easy_first, not {decoding.name}")
        check_length_candidates(decoding, self.denoiser.max_length)
