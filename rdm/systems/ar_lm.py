"""The autoregressive language model: the network of diffusion over text, with a causal mask."""

from collections.abc import Callable
from itertools import repeat

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.left_to_right import LeftToRight
from rdm.errors import require
from rdm.models.layers import attend_causally
from rdm.models.llama import Llama, Reader
from rdm.systems.base import Hypotheses, Likelihood, System
from rdm.systems.continuation import check_prompt, truncate
from rdm.terms import Term
from rdm.vocab import Vocab


class AutoregressiveLanguageModel(System):
    """``p(x_1 .. x_N) = prod_n p(x_n | <bos> x_1 .. x_{n-1})``: every window begins at ``<bos>``.

    The first token is therefore predicted too, and the probabilities of all windows of one length sum to one.
    ``<pad>``, ``<mask>`` and ``<bos>`` never occur in text and are never predicted.

    Args:
        vocab: size and special ids.
        network: the Transformer.
        label_smoothing: share of the target mass in training spread over all ids that can be predicted.
    """

    open_ended = True

    def __init__(self, vocab: Vocab, network: Llama, label_smoothing: float = 0.0) -> None:
        super().__init__()
        require(0 <= label_smoothing < 1, f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.vocab = vocab
        self.network = network
        self.label_smoothing = label_smoothing
        network.restrict(vocab.select(without=(vocab.pad, vocab.mask, vocab.bos)))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        losses = self._cross_entropy(batch.target, batch.source.shape[1], self.label_smoothing)
        return [Term("nll", losses.sum(), "tokens")]

    def log_likelihood(self, tokens: Tensor, prefix: int = 0) -> Tensor:
        """Return ``log p(x_{prefix+1} .. x_N | x_1 .. x_prefix)`` ``[B]`` for ``tokens [B, N]``."""
        return -self._cross_entropy(tokens, prefix, smoothing=0.0)

    def _cross_entropy(self, tokens: Tensor, prefix: int, smoothing: float) -> Tensor:
        """Return the cross-entropy ``[B]`` of what follows the first ``prefix`` of ``tokens [B, N]``."""
        states = self.network(self.network.embed(self._from_start(tokens)[:, :-1]), repeat(attend_causally))
        logits, learned = self.network.project(states[:, prefix:]).flatten(0, 1), tokens[:, prefix:]
        losses = smoothed_cross_entropy(logits, learned.flatten(), self.network.output_bias == 0, smoothing)
        # Padding after a short text is not visible to any real token and is not part of the text.
        return losses.view(learned.shape).masked_fill(learned == self.vocab.pad, 0.0).sum(1)

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return the exact ``-log p`` of what follows the prefix; ``draws`` is not used."""
        tokens = (self.learned_tokens(batch) != self.vocab.pad).sum(1)
        return Likelihood(-self.log_likelihood(batch.target, batch.source.shape[1]).double(), tokens, kind="exact")

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: LeftToRight,
        generator: torch.Generator | None = None,
        observer: Callable[[Tensor, Tensor], None] | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        require(template is None, "template: an autoregressive model cannot fill blanks")
        check_prompt(source, self.vocab, self.network.max_length)
        rows, prefix = source.shape
        count = min(decoding.max_tokens, self.network.max_length - prefix)
        reader = Reader(self.network, rows, positions=prefix + count)
        decoded = decoding.run(reader, self._from_start(source), count, self.vocab, generator, observer)
        continuation = truncate(decoded.tokens, self.vocab, count)
        return Hypotheses(continuation, decoded.scores, torch.arange(rows, device=source.device), calls=decoded.calls)

    def _from_start(self, tokens: Tensor) -> Tensor:
        """Prepend ``<bos>`` to ``tokens [B, N]``."""
        return functional.pad(tokens, (1, 0), value=self.vocab.bos)

    def check(self, decoding: Decoding) -> None:
        known = isinstance(decoding, LeftToRight)
        require(known, f"decoding={decoding.name} does not fit system=ar_lm; use decoding=left_to_right")
