"""The denoiser of DiffuSeq: one bidirectional Transformer over source and target together.

    <bos> source <eos>  |  <bos> target <eos> <pad> ... <pad>
    clean, its padding not attended to  |  noisy points, a fixed number; padding is content and learned

The two halves have positions of their own, which also tell them apart, and so the width a batch pads its sources to
does not matter.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdm.errors import require
from rdm.models.layers import Block, Dropout, TimeEmbedding, check_sizes, initialise, where
from rdm.vocab import Vocab


@dataclass(frozen=True)
class Given:
    """The source half as it enters the Transformer, and where it is real."""

    states: Tensor  # [B, S, D]
    mask: Tensor  # [B, S] bool


class DiffuSeqDenoiser(nn.Module):
    """Word embeddings of a width of their own, projected up to the Transformer and back down.

    Args:
        vocab: size and special ids.
        embedding: width ``E`` of the points that are diffused.
        dim, hidden, heads, layers: width ``D``, width of the feed-forward layers, attention heads, depth.
        max_length: most tokens in a sentence, without ``<bos>`` and ``<eos>``.
        dropout, attention_dropout, activation_dropout: on residual branches, attention weights, feed-forward.
        pre_norm: layer norm before each sublayer instead of after it.
        init_std: of the initial weights.
    """

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
        self.down = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, embedding))
        self.time_embedding = TimeEmbedding(dim)
        self.norm, self.dropout = nn.LayerNorm(dim), Dropout(dropout)
        self.blocks = nn.ModuleList(Block(dim, hidden, heads, *dropouts, pre_norm, cross=False) for _ in range(layers))
        self.final_norm = nn.LayerNorm(dim) if pre_norm else nn.Identity()
        self.apply(partial(initialise, std=init_std))
        # Not initialised like the others: words begin on the scale of the noise they are mixed with, and positions,
        # too, have to be seen through it.
        self.tokens = nn.Embedding(vocab.size, embedding)
        self.positions = nn.Embedding(2 * self.width, dim)

    def read(self, source: Tensor) -> Given:
        """Prepare sources ``[B, S]``, once for all steps."""
        states = self.up(self.tokens(source)) + self.positions.weight[: source.shape[1]]
        return Given(states, source != self.vocab.pad)

    def forward(self, z_t: Tensor, t: Tensor, given: Given) -> Tensor:
        """Guess ``z_0 [R, N, E]`` from ``z_t [R, N, E]`` at steps ``t [R]``, one source a row."""
        length = z_t.shape[1]
        target = self.up(z_t) + self.positions.weight[self.width : self.width + length]
        x = torch.cat([given.states, target], 1) + self.time_embedding(t)[:, None]
        x = self.dropout(self.norm(x))
        attend = where(functional.pad(given.mask, (0, length), value=True)[:, None])
        for block in self.blocks:
            x = block(x, attend)
        return self.down(self.final_norm(x[:, -length:]))

    def logits(self, z: Tensor) -> Tensor:
        """``log p(w | z)`` up to a constant: points ``[..., E]`` against the embedding of every word, ``[..., V]``."""
        return functional.linear(z, self.tokens.weight)
