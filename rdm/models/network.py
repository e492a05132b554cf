"""The base of networks over a vocabulary: initial weights, output projection, ids that must not be predicted."""

from abc import ABC, abstractmethod
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdm.cross_entropy import Logits, Projection
from rdm.describe import Described
from rdm.vocab import Vocab

BARRED = -3e4
"""Added to the logits of ids that must not be predicted: their probability is exactly 0, and all numbers stay finite,
also in half precision."""


class LooksAhead(nn.Module):
    """A bidirectional network in which only a share of the later positions may be visible in training.

    >>> network = LooksAhead()
    >>> network.visible_share = 0.0
    >>> network.visible(2, torch.device("cpu"))
    tensor([[[ True, False],
             [ True,  True]]])
    """

    visible_share = 1.0

    def visible(self, length: int, device: torch.device) -> Tensor | None:
        """Draw which of ``length`` positions each of them sees, bool ``[1, N, N]``; None if all.

        A position sees itself and earlier ones, and each later one with probability ``visible_share``.
        """
        if not self.training or self.visible_share >= 1:
            return None
        later = torch.rand(1, length, length, device=device) < self.visible_share
        return later | torch.ones_like(later).tril()


def initialise(module: nn.Module, std: float) -> None:
    """Initialise weights from a normal distribution and biases with zero; for ``Module.apply``."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Restricted(Described, LooksAhead, ABC):
    """A network over a vocabulary whose predictions can be restricted to a set of ids.

    ``output_bias [V]`` is added to its logits.

    Args:
        vocab: size and special ids.
        init_std: standard deviation of the initial weights.
        fused_cross_entropy: see :meth:`logits`.
    """

    output_bias: Tensor

    def __init__(self, vocab: Vocab, init_std: float, fused_cross_entropy: bool = False) -> None:
        super().__init__()
        self.vocab, self.init_std, self.fused_cross_entropy = vocab, init_std, fused_cross_entropy
        self.register_buffer("output_bias", torch.zeros(vocab.size))

    @abstractmethod
    def output_weight(self) -> Tensor:
        """Return the output embedding ``[V, D]``."""

    def to_vocabulary(self, states: Tensor) -> Tensor:
        """Return logits ``[..., V]`` for states ``[..., D]``."""
        return functional.linear(states, self.output_weight(), self.output_bias)

    def logits(self, states: Tensor) -> Logits:
        """Return logits ``[..., V]`` for states ``[..., D]``.

        With ``fused_cross_entropy``, where a gradient is needed, they are left to the loss, which computes them in
        chunks and again in the backward pass: less memory, a third more work in this product.
        """
        if self.fused_cross_entropy and torch.is_grad_enabled():
            return Projection(states, self.output_weight(), self.output_bias)
        return self.to_vocabulary(states)

    def restrict(self, predictable: Tensor) -> None:
        """Exclude the ids that are false in ``predictable [V]`` from prediction."""
        self.output_bias.copy_(torch.where(predictable, 0.0, BARRED))

    def initialise_module(self, module: nn.Module) -> None:
        """Initialise ``module`` and its submodules like this network, which may be ``module`` itself."""
        module.apply(partial(initialise, std=self.init_std))
