"""The network of diffusion over embeddings: one bidirectional Transformer over source and target together.

    <bos> source <eos>                  |  <bos> target <eos> <pad> ... <pad>
    clean, its padding not attended to  |  a fixed number of noisy points; padding is learned like any word

The two halves have separate position embeddings, which also distinguish them, so the padded width of the sources does
not matter.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdm.describe import Described
from rdm.errors import require
from rdm.models.layers import Block, Dropout, TimeEmbedding, attend_where, check_sizes
from rdm.models.network import initialise
from rdm.vocab import Vocab


@dataclass(frozen=True)
class EncodedSource:
    """The source half as input of the Transformer, with its padding mask."""

    states: Tensor  # [B, S, D]
    mask: Tensor  # [B, S] bool, false at padding


class PointTransformer(Described, nn.Module, ABC):
    """Reads the source and noised points in the place of the target's words.

    Points of width ``E`` are projected up to the width of the Transformer; subclasses add the output.

    Args:
        vocab: size and special ids.
        embedding: width ``E`` of the points that are diffused.
        dim, hidden, heads, layers: width ``D``, width of the feed-forward layers, attention heads, depth.
        max_length: maximum number of tokens in a sentence, without ``<bos>`` and ``<eos>``.
        dropout, attention_dropout, activation_dropout: on residual branches, attention weights, feed-forward.
        pre_norm: layer norm before each sublayer instead of after it.
        init_std: standard deviation of the initial weights.
    """

    halves = 2
    """How many texts have positions here: source and target."""

    def __init__(
        self,
        vocab: Vocab,
        embedding: int = 128,
        dim: int = 768,
        hidden: int = 3072,
        heads: int = 12,
        layers: int = 12,
        max_length: int = 126,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.0,
        pre_norm: bool = False,
        init_std: float = 0.02,
    ) -> None:
        super().__init__()
        check_sizes(embedding=embedding, dim=dim, hidden=hidden, heads=heads, layers=layers, max_length=max_length)
        require(dim % heads == 0, f"model.dim ({dim}) must be a multiple of model.heads ({heads})")
        self.vocab = vocab
        self.width = max_length + 2  # <bos> and <eos>
        dropouts = (dropout, attention_dropout, activation_dropout)
        self.up = nn.Sequential(nn.Linear(embedding, dim), nn.Tanh(), nn.Linear(dim, dim))
        self.build_output(embedding, dim)
        self.time_embedding = TimeEmbedding(dim)
        self.norm, self.dropout = nn.LayerNorm(dim), Dropout(dropout)
        self.build_stacks(partial(Block, dim, hidden, heads, *dropouts, pre_norm), layers)
        self.final_norm = nn.LayerNorm(dim) if pre_norm else nn.Identity()
        self.apply(partial(initialise, std=init_std))
        # With PyTorch's default of standard deviation 1: words must be on the scale of the noise added to them, and
        # positions must not be lost in it.
        self.tokens = nn.Embedding(vocab.size, embedding)
        self.positions = nn.Embedding(self.halves * self.width, dim)

    @abstractmethod
    def build_output(self, embedding: int, dim: int) -> None:
        """Add the layers of the output, which are initialised like the others; called by the constructor."""

    def build_stacks(self, block: Callable[..., Block], layers: int) -> None:
        """Add the layers, given ``block(cross=...)``; called by the constructor."""
        self.blocks = nn.ModuleList(block(cross=False) for _ in range(layers))

    def embeddings(self) -> Tensor:
        """Return the embedding ``[V, E]`` of every word."""
        return self.tokens.weight

    def encode(self, source: Tensor) -> EncodedSource:
        """Embed sources ``[B, S]``, once for all steps."""
        words = functional.embedding(source, self.embeddings())
        states = self.up(words) + self.positions.weight[: source.shape[1]]
        return EncodedSource(states, source != self.vocab.pad)

    def states(self, points: Tensor, t: Tensor, source: EncodedSource) -> Tensor:
        """Return states ``[R, N, D]`` for points projected up, ``[R, N, D]``, at ``t [R]``, with one source per row."""
        length = points.shape[1]
        target = points + self.positions.weight[self.width : self.width + length]
        x = torch.cat([source.states, target], 1) + self.time_embedding(t)[:, None]
        x = self.dropout(self.norm(x))
        attend = attend_where(functional.pad(source.mask, (0, length), value=True)[:, None])
        for block in self.blocks:
            x = block(x, attend)
        return self.final_norm(x[:, -length:])


class DiffuSeqDenoiser(PointTransformer):
    """Predicts clean word embeddings from noised ones and the source.

    >>> denoiser = DiffuSeqDenoiser(Vocab(size=9), 4, 8, 16, heads=2, layers=1, max_length=6)
    >>> source = denoiser.encode(torch.tensor([[2, 5, 6, 3]]))
    >>> denoiser(torch.zeros(1, 8, 4), t=torch.tensor([3]), source=source).shape
    torch.Size([1, 8, 4])
    """

    self_conditioning = 0.0

    def build_output(self, embedding: int, dim: int) -> None:
        self.down = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, embedding))

    def forward(self, z_t: Tensor, t: Tensor, source: EncodedSource, guess: Tensor | None = None) -> Tensor:
        """Predict ``z_0 [R, N, E]`` from ``z_t [R, N, E]`` at steps ``t [R]``, with one source per row.

        ``guess [R, N, E]`` is a previous prediction, which only :class:`SelfConditionedDiffuSeq` reads.
        """
        return self.down(self.states(self.up(z_t), t, source))

    def logits(self, z: Tensor) -> Tensor:
        """Return ``log p(w | z)`` ``[..., V]`` up to a constant for points ``z [..., E]``."""
        return functional.linear(z, self.tokens.weight)


class SelfConditionedDiffuSeq(DiffuSeqDenoiser):
    """Also reads its previous prediction of ``z_0``, zeros if there is none (Chen et al., 2023; not in DiffuSeq).

    Args:
        self_conditioning: share of the training passes that read the prediction of a first pass.
        options: those of :class:`PointTransformer`.

    >>> sizes = {"embedding": 4, "dim": 8, "heads": 2, "layers": 1, "max_length": 6}
    >>> denoiser = SelfConditionedDiffuSeq(0.5, vocab=Vocab(size=9), **sizes)
    >>> source, z = denoiser.encode(torch.tensor([[2, 5, 6, 3]])), torch.zeros(1, 8, 4)
    >>> denoiser(z, torch.tensor([3]), source, guess=z).shape
    torch.Size([1, 8, 4])
    """

    def __init__(self, self_conditioning: float, **options: Any) -> None:
        super().__init__(**options)
        require(0 <= self_conditioning <= 1, f"model.self_conditioning must lie in [0, 1], got {self_conditioning}")
        self.self_conditioning = self_conditioning

    def build_output(self, embedding: int, dim: int) -> None:
        super().build_output(embedding, dim)
        self.condition = nn.Linear(embedding, dim)

    def forward(self, z_t: Tensor, t: Tensor, source: EncodedSource, guess: Tensor | None = None) -> Tensor:
        condition = self.condition(torch.zeros_like(z_t) if guess is None else guess)
        return self.down(self.states(self.up(z_t) + condition, t, source))
