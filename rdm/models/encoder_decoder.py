"""The denoiser of the paper: a Transformer whose decoder sees all positions at once.

The encoder reads the source once; everything that does not change between noised copies, iterations and length
candidates (cross-attention keys and values, length scores) is kept in a :class:`Memory`.
"""

from dataclasses import dataclass
from functools import partial
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from rdm.errors import require
from rdm.models.layers import Block, Embedding, KeyValue, Restricted, TimeEmbedding, initialise
from rdm.models.length import LengthHead
from rdm.vocab import Vocab


@dataclass(frozen=True)
class Memory:
    """What is known of ``B`` sources: keys and values for each decoder layer, where they are real, length scores."""

    key_values: list[KeyValue]
    mask: Tensor  # [B, S] bool
    length_logits: Tensor  # [B, max_length + 1]


class EncoderDecoder(Restricted):
    """Encoder, bidirectional decoder with time embedding, length head, and one embedding for source, target and output.

    Args:
        vocab: size and special ids.
        dim, hidden, heads: width, width of the feed-forward layers, attention heads.
        encoder_layers, decoder_layers: depth.
        max_length: most tokens in a sentence, without ``<bos>`` and ``<eos>``.
        dropout, attention_dropout, activation_dropout: on residual branches, attention weights, feed-forward.
        pre_norm: layer norm before each sublayer instead of after it.
        init_std: of the initial weights; narrow models want more than BERT's 0.02, or attention stays flat for long.
    """

    def __init__(
        self,
        vocab: Vocab,
        dim: int = 512,
        hidden: int = 1024,
        heads: int = 4,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        max_length: int = 255,
        dropout: float = 0.3,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        pre_norm: bool = False,
        init_std: float = 0.02,
    ) -> None:
        super().__init__(vocab)
        require(dim % heads == 0, f"model.dim ({dim}) must be a multiple of model.heads ({heads})")
        self.max_length = max_length

        def blocks(count: int, cross: bool) -> nn.ModuleList:
            dropouts = (dropout, attention_dropout, activation_dropout)
            return nn.ModuleList(Block(dim, hidden, heads, *dropouts, pre_norm, cross) for _ in range(count))

        def final_norm() -> nn.Module:
            return nn.LayerNorm(dim) if pre_norm else nn.Identity()

        self.tokens = nn.Embedding(vocab.size, dim)
        positions = max_length + 2  # <bos> and <eos>
        self.source_embedding = Embedding(self.tokens, positions, dropout)
        self.target_embedding = Embedding(self.tokens, positions, dropout)
        self.time_embedding = TimeEmbedding(dim)
        self.encoder, self.encoder_norm = blocks(encoder_layers, cross=False), final_norm()
        self.decoder, self.decoder_norm = blocks(decoder_layers, cross=True), final_norm()
        self.length = LengthHead(dim, max_length + 1)
        self.apply(partial(initialise, std=init_std))

    def encode(self, source: Tensor) -> Memory:
        """Read sources ``[B, S]``."""
        mask = source != self.vocab.pad
        x = self.source_embedding(source)
        for block in self.encoder:
            x = block(x, mask)
        x = self.encoder_norm(x)
        return Memory(
            key_values=[cast(Block, block).remember(x) for block in self.decoder],
            mask=mask,
            length_logits=self.length(x, mask),
        )

    def forward(self, x_t: Tensor, t: Tensor, memory: Memory, positions: Tensor | None = None) -> Tensor:
        """Logits of the clean text.

        Args:
            x_t: ``[R, N]`` noised tokens; ``R`` is a multiple of the ``B`` sources, copies of one source together.
            t: ``[R]`` steps, 1..T.
            positions: ``[R, N]`` bool, the ``P`` positions to project to the vocabulary; None means all.

        Returns:
            ``[P, V]`` in row-major order of the positions, or ``[R, N, V]``.
        """
        mask = x_t != self.vocab.pad
        x = self.target_embedding(x_t) + self.time_embedding(t)[:, None]
        for block, key_value in zip(self.decoder, memory.key_values, strict=True):
            x = block(x, mask, key_value, memory.mask)
        if positions is not None:
            x = x[positions]
        return functional.linear(self.decoder_norm(x), self.tokens.weight, self.output_bias)
