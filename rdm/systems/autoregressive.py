"""The autoregressive baseline: the same Transformer with a causal decoder and beam search."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.beam import BeamSearch
from rdm.errors import require
from rdm.models.causal import CausalDecoder
from rdm.models.pretrained import PretrainedDecoder
from rdm.systems.base import Candidates, Hypotheses, Likelihood, System
from rdm.terms import Term
from rdm.vocab import Vocab


class AutoregressiveSystem(System):
    """Trained by the cross-entropy of every token, conditioned on the source and the tokens before it.

    Args:
        vocab: size and special ids.
        decoder: the network.
        label_smoothing: share of the target mass spread over all ids except ``<pad>``, ``<mask>`` and ``<bos>``.
    """

    rescores = True
    predictable: Tensor

    def __init__(self, vocab: Vocab, decoder: CausalDecoder | PretrainedDecoder, label_smoothing: float = 0.1) -> None:
        super().__init__()
        require(0 <= label_smoothing < 1, f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.vocab = vocab
        self.decoder = decoder
        self.label_smoothing = label_smoothing
        self.register_buffer("predictable", vocab.select(without=(vocab.pad, vocab.mask, vocab.bos)))
        decoder.restrict(self.predictable)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        return [Term("cross_entropy", self.cross_entropy(batch.target, self.decoder.encode(batch.source)), "next")]

    def cross_entropy(self, target: Tensor, memory: Any) -> Tensor:
        """Return the smoothed cross-entropy of targets ``[B, N]``, given the encoded sources, summed over tokens."""
        before, after = target[:, :-1], target[:, 1:]
        real = (after != self.vocab.pad).nonzero(as_tuple=True)  # the only device synchronisation of the step
        logits = self.decoder(before, memory, real)
        return smoothed_cross_entropy(logits, after[real], self.predictable, self.label_smoothing).sum()

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Add the ``next`` tokens: those with a token before them, that is all but ``<bos>``."""
        target = batch.target
        return {**super().counts(batch), "next": ((target != self.vocab.pad) & (target != self.vocab.bos)).sum()}

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return the exact ``-log p(text <eos> | source)``; ``draws`` is not used."""
        nats = self.target_nats(batch.target, self.decoder.encode(batch.source))
        return Likelihood(nats, (batch.target[:, 1:] != self.vocab.pad).sum(1), kind="exact")

    def target_nats(self, target: Tensor, memory: Any) -> Tensor:
        """Return ``-log p(text <eos> | source)`` ``[B]`` of targets ``[B, N]``, given the encoded sources."""
        before, after = target[:, :-1], target[:, 1:]
        real = after != self.vocab.pad
        nats = torch.zeros(after.shape, dtype=torch.float64, device=after.device)
        nats[real] = functional.cross_entropy(
            self.decoder(before, memory, real).double(), after[real], reduction="none"
        )
        return nats.sum(1)

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: BeamSearch,
        generator: torch.Generator | None = None,
        observer: Callable[[Tensor, Tensor], None] | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        require(template is None, "template: an autoregressive model cannot fill blanks")
        memory: Any = self.decoder.encode(source)
        write = self.decoder.continuation(memory)
        first = torch.full_like(source[:, 0], self.vocab.bos)
        best = decoding.run(write, first, self.decoder.max_length, self.vocab, observer)
        rows = torch.arange(len(source), device=source.device)
        n_best = Candidates(best.tokens, best.scores, chosen=torch.zeros_like(rows))
        return Hypotheses(best.tokens[:, 0], best.scores[:, 0], rows, n_best if decoding.candidates > 1 else None)

    def check(self, decoding: Decoding) -> None:
        require(
            isinstance(decoding, BeamSearch),
            f"decoding={decoding.name} does not fit an autoregressive model; use decoding=beam or decoding=greedy",
        )
