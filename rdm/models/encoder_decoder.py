"""The Transformer of the paper: what the denoiser and the autoregressive model share.

The encoder reads the source once; everything that does not change between noised copies, iterations, candidates and
beams (encoder states, cross-attention keys and values) is kept in a :class:`Memory`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from torch import Tensor, nn

from rdm.errors import require
from rdm.models.layers import (
    Attend,
    Block,
    Embedding,
    Extend,
    KeyValue,
    Positions,
    Restricted,
    check_sizes,
    everything,
    initialise,
    only_these,
    where,
)
from rdm.vocab import Vocab


@dataclass(frozen=True)
class Memory:
    """What is known of ``B`` sources: encoder states, where they are real, keys and values for each decoder layer."""

    states: Tensor  # [B, S, D]
    mask: Tensor  # [B, S] bool
    key_values: list[KeyValue]
    padded: bool  # False if the mask is known to be true everywhere

    def __len__(self) -> int:
        return len(self.mask)

    def select(self, sources: Tensor) -> "Memory":
        """Only these sources, by index or where true."""
        key_values = [(key[sources], value[sources]) for key, value in self.key_values]
        return Memory(self.states[sources], self.mask[sources], key_values, self.padded)

    @property
    def attend(self) -> Attend:
        """See the whole source."""
        return real_tokens(self.mask, self.padded)


def real_tokens(mask: Tensor, padded: bool) -> Attend:
    """See where ``mask [B, S]`` is true. Attention has faster kernels for no mask at all."""
    return where(mask[:, None]) if padded else everything


class EncoderDecoder(Restricted):
    """Encoder, decoder layers, and one embedding for source, target and output.

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
        layers = {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers}
        check_sizes(dim=dim, hidden=hidden, heads=heads, max_length=max_length, **layers)
        require(dim % heads == 0, f"model.dim ({dim}) must be a multiple of model.heads ({heads})")
        self.dim = dim
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
        self.encoder, self.encoder_norm = blocks(encoder_layers, cross=False), final_norm()
        self.decoder, self.decoder_norm = blocks(decoder_layers, cross=True), final_norm()
        self.initialise = partial(initialise, std=init_std)  # parts built around this network start alike
        self.apply(self.initialise)

    def encode(self, source: Tensor) -> Memory:
        """Read sources ``[B, S]``."""
        mask = source != self.vocab.pad
        padded = self._padded(mask)
        attend = real_tokens(mask, padded)
        x = self.source_embedding(source)
        for block in self.encoder:
            x = block(x, attend)
        x = self.encoder_norm(x)
        return Memory(x, mask, [cast(Block, block).remember(x) for block in self.decoder], padded)

    def all_of(self, targets: Tensor) -> Attend:
        """For :meth:`decode`: every position of ``targets [R, N]`` sees all that are not padding."""
        mask = targets != self.vocab.pad
        return real_tokens(mask, self._padded(mask))

    def _padded(self, mask: Tensor) -> bool:
        # In training a GPU is not asked, because the step would have to wait for its answer.
        return (self.training and mask.device.type != "cpu") or not bool(mask.all())

    def decode(self, x: Tensor, attend: Attend, memory: Memory, extend: Sequence[Extend] | None = None) -> Tensor:
        """The decoder layers.

        Args:
            x: ``[R, N, D]`` embedded targets; ``R`` is a multiple of the ``B`` sources, rows of one source together.
            attend: what each position sees of the ``L`` there are.
            extend: for each layer, how to come from the keys and values of ``x`` to all ``L`` there are to see.

        Returns:
            ``[R, N, D]``, for :meth:`project`.
        """
        layers = zip(self.decoder, memory.key_values, extend or [only_these] * len(self.decoder), strict=True)
        for block, key_value, seen in layers:
            x = block(x, attend, key_value, memory.attend, seen)
        return x

    def project(self, x: Tensor, positions: Positions | None = None) -> Tensor:
        """Logits ``[P, V]`` at the ``positions`` of ``x [R, N, D]``, or all: ``[R, N, V]``."""
        if positions is not None:
            x = x[positions]
        return self.to_vocabulary(self.decoder_norm(x))

    def output_weight(self) -> Tensor:
        return self.tokens.weight
