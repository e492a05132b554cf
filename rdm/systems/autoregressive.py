"""The autoregressive baseline: the same Transformer with a causal decoder and beam search."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.beam import BeamSearch
from rdm.errors import require
from rdm.models.causal import CausalDecoder, Continuation
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

    predictable: Tensor

    def __init__(self, vocab: Vocab, decoder: CausalDecoder, label_smoothing: float = 0.1) -> None:
        super().__init__()
        require(0 <= label_smoothing < 1, f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.vocab = vocab
        self.decoder = decoder
        self.label_smoothing = label_smoothing
        self.register_buffer("predictable", vocab.select(without=(vocab.pad, vocab.mask, vocab.bos)))
        decoder.restrict(self.predictable)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        before, target = batch.target[:, :-1], batch.target[:, 1:]
        real = (target != self.vocab.pad).nonzero(as_tuple=True)  # the only device synchronisation of the step
        logits = self.decoder(before, self.decoder.encode(batch.source), real)
        loss = smoothed_cross_entropy(logits, target[real], self.predictable, self.label_smoothing)
        return [Term("cross_entropy", loss.sum(), "next")]

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Add the ``next`` tokens: those with a token before them, that is all but ``<bos>``."""
        target = batch.target
        return {**super().counts(batch), "next": ((target != self.vocab.pad) & (target != self.vocab.bos)).sum()}

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return the exact ``-log p(text <eos> | source)``; ``draws`` is not used."""
        before, target = batch.target[:, :-1], batch.target[:, 1:]
        real = target != self.vocab.pad
        nats = torch.zeros(target.shape, dtype=torch.float64, device=target.device)
        logits = self.decoder(before, self.decoder.encode(batch.source), real)
        nats[real] = functional.cross_entropy(logits.double(), target[real], reduction="none")
        return Likelihood(nats.sum(1), real.sum(1), kind="exact")

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
        write = Continuation(self.decoder, self.decoder.encode(source))
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
