"""The autoregressive twin of the diffusion over open-ended text: the same network with the causal mask."""

from collections.abc import Callable
from itertools import repeat

import torch
from torch import Tensor
from torch.nn import functional

from rdm.data.batching import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.left_to_right import LeftToRight
from rdm.diffusion.objective import smoothed_cross_entropy
from rdm.errors import require
from rdm.models.layers import causal
from rdm.models.llama import Llama, Reader
from rdm.systems.base import Hypotheses, Likelihood, System, Term
from rdm.systems.continuation import check_prompt, cut
from rdm.vocab import Vocab


class AutoregressiveLanguageModel(System):
    """``p(x_1 .. x_N) = prod_n p(x_n | <bos> x_1 .. x_{n-1})``: every window begins at ``<bos>``.

    So the first token is predicted too, and the windows of one length have probabilities that sum to one. ``<pad>``,
    ``<mask>`` and ``<bos>`` are no part of text and are never predicted.
    """

    open_ended = True

    def __init__(self, vocab: Vocab, network: Llama) -> None:
        super().__init__()
        self.vocab = vocab
        self.network = network
        network.restrict(vocab.select(without=(vocab.pad, vocab.mask, vocab.bos)))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        return [Term("nll", -self.log_likelihood(batch.target, batch.source.shape[1]).sum(), "tokens")]

    def log_likelihood(self, tokens: Tensor, given: int = 0) -> Tensor:
        """``log p(x_{given + 1} .. x_N | x_1 .. x_given)`` of each row of ``tokens [B, N]``: ``[B]``."""
        states = self.network(self.network.tokens(self._from_start(tokens)[:, :-1]), repeat(causal))
        logits, learned = self.network.project(states[:, given:]).flatten(0, 1), tokens[:, given:]
        losses = smoothed_cross_entropy(logits, learned.flatten(), self.network.output_bias == 0, smoothing=0.0)
        # Padding behind a short text is seen by nothing before it and is no part of it.
        return -losses.view(learned.shape).masked_fill(learned == self.vocab.pad, 0.0).sum(1)

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """``-log p`` of what follows the given tokens; there is nothing to draw."""
        given = batch.source.shape[1]
        tokens = (batch.target[:, given:] != self.vocab.pad).sum(1)
        return Likelihood(-self.log_likelihood(batch.target, given).double(), tokens, kind="exact")

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: LeftToRight,
        generator: torch.Generator | None = None,
        observer: Callable[[Tensor, Tensor], None] | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        require(template is None, "template: a model that writes from left to right cannot fill blanks")
        check_prompt(source, self.vocab, self.network.max_length)
        rows, given = source.shape
        count = min(decoding.max_tokens, self.network.max_length - given)
        reader = Reader(self.network, rows, positions=given + count)
        decoded = decoding.run(reader, self._from_start(source), count, self.vocab, generator, observer)
        continuation = cut(decoded.tokens, self.vocab, count)
        return Hypotheses(continuation, decoded.scores, torch.arange(rows, device=source.device), calls=decoded.calls)

    def _from_start(self, tokens: Tensor) -> Tensor:
        """``<bos>`` in front of ``tokens [B, N]``."""
        return functional.pad(tokens, (1, 0), value=self.vocab.bos)

    def check(self, decoding: Decoding) -> None:
        known = isinstance(decoding, LeftToRight)
        require(known, f"decoding={decoding.name}: a language model that writes left to right needs left_to_right")
