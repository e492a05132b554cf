"""The denoiser of CDCD (Dieleman et al., 2022): a distribution over words at every noised point."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdm.models.diffuseq import EncodedSource, PointTransformer

TIME_SCALE = 100.0
"""The time embedding receives ``TIME_SCALE * log t``: differences of ``log t`` become visible to its sinusoids."""


class CDCDDenoiser(PointTransformer):
    """Predicts the words behind points with noise of standard deviation ``t``.

    Word embeddings are normalised to length ``sqrt(E)``, so that they cannot collapse or grow. Points are read as
    ``x / sqrt(t^2 + 1)``, beside the previous prediction of ``x_0`` (self-conditioning; zeros if there is none).

    >>> from rdm.vocab import Vocab
    >>> denoiser = CDCDDenoiser(Vocab(size=9), 4, 8, 16, heads=2, layers=1, max_length=6)
    >>> source = denoiser.encode(torch.tensor([[2, 5, 6, 3]]))
    >>> denoiser(torch.zeros(1, 8, 4), torch.tensor([3.0]), source).shape
    torch.Size([1, 8, 9])
    """

    def build_output(self, embedding: int, dim: int) -> None:
        self.condition = nn.Linear(embedding, dim)
        self.head = nn.Linear(dim, self.vocab.size)

    def embeddings(self) -> Tensor:
        """Return the normalised embedding ``[V, E]`` of every word."""
        weight = self.tokens.weight
        return math.sqrt(weight.shape[1]) * functional.normalize(weight, dim=1)

    def forward(self, x: Tensor, t: Tensor, source: EncodedSource, guess: Tensor | None = None) -> Tensor:
        """Return logits ``[R, N, V]`` for points ``x [R, N, E]`` at ``t [R]``, with one source per row.

        ``guess [R, N, E]`` is the prediction of ``x_0`` that the network is conditioned on.
        """
        scaled = x / (t[:, None, None].square() + 1).sqrt()
        condition = self.condition(torch.zeros_like(x) if guess is None else guess)
        return self.head(self.states(self.up(scaled) + condition, TIME_SCALE * t.log(), source))

    def expected_embedding(self, logits: Tensor) -> Tensor:
        """Return ``x0_hat = sum_w p(w) E(w)`` ``[..., E]`` for logits ``[..., V]``."""
        return logits.float().softmax(-1) @ self.embeddings()
