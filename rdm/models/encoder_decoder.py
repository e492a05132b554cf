"""The encoder-decoder Transformer of the paper, shared by the denoiser and the autoregressive model.

The encoder reads the source once. What stays constant over noised copies, iterations, candidates and beams (encoder
states, cross-attention keys and values) is kept in a :class:`Memory`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from rdm.cross_entropy import Logits
from rdm.errors import require
from rdm.models.cache import KeyValueCache, Part
from rdm.models.layers import (
    Attend,
    Block,
    Embedding,
    Extend,
    KeyValue,
    Positions,
    attend_everywhere,
    attend_where,
    check_sizes,
    uncached,
)
from rdm.models.network import Restricted
from rdm.vocab import Vocab


@dataclass(frozen=True)
class Memory:
    """``B`` encoded sources: encoder states, padding mask, keys and values for each decoder layer."""

    states: Tensor  # [B, S, D]
    mask: Tensor  # [B, S] bool, false at padding
    key_values: list[KeyValue]
    padded: bool  # False if the mask is known to be true everywhere

    def __len__(self) -> int:
        return len(self.mask)

    def select(self, sources: Tensor) -> "Memory":
        """Select sources by index or mask."""
        key_values = [(key[sources], value[sources]) for key, value in self.key_values]
        return Memory(self.states[sources], self.mask[sources], key_values, self.padded)

    @property
    def attend(self) -> Attend:
        """Attention to the whole source."""
        return attend_real(self.mask, self.padded)


def attend_real(mask: Tensor, padded: bool) -> Attend:
    """Return attention to the positions where ``mask [B, S]`` is true; kernels without a mask are faster."""
    return attend_where(mask[:, None]) if padded else attend_everywhere


class EncoderDecoder(Restricted):
    """Encoder and decoder layers with one embedding for source, target and output.

    Args:
        vocab: size and special ids.
        dim, hidden, heads: width, width of the feed-forward layers, attention heads.
        encoder_layers, decoder_layers: depth.
        max_length: maximum number of tokens in a sentence, without ``<bos>`` and ``<eos>``.
        dropout, attention_dropout, activation_dropout: on residual branches, attention weights, feed-forward.
        pre_norm: layer norm before each sublayer instead of after it.
        init_std: standard deviation of the initial weights. Narrow models need more than BERT's 0.02; otherwise
            attention stays nearly uniform for many steps.
        fused_cross_entropy: compute the logits of the training loss in chunks, and again in the backward pass: less
            memory, a third more work in the projection to the vocabulary.

    >>> import torch
    >>> network = EncoderDecoder(Vocab(size=9), 8, 16, 2, 1, 1, max_length=6)
    >>> source, target = torch.tensor([[2, 5, 6, 3]]), torch.tensor([[2, 7, 3]])
    >>> memory = network.encode(source)
    >>> network.project(network.denoise(network.embed(target), target, memory)).shape
    torch.Size([1, 3, 9])
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
        fused_cross_entropy: bool = False,
    ) -> None:
        super().__init__(vocab, init_std, fused_cross_entropy)
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
        self.initialise_module(self)

    def encode(self, source: Tensor) -> Memory:
        """Encode sources ``[B, S]``."""
        mask = source != self.vocab.pad
        padded = self._padded(mask)
        attend = attend_real(mask, padded)
        x = self.source_embedding(source)
        for block in self.encoder:
            x = block(x, attend)
        x = self.encoder_norm(x)
        return Memory(x, mask, [cast(Block, block).remember(x) for block in self.decoder], padded)

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Embed target tokens ``[R, N]`` at positions ``start, start + 1, ...`` as ``[R, N, D]``."""
        return self.target_embedding(tokens, start)

    def denoise(self, x: Tensor, tokens: Tensor, memory: Memory) -> Tensor:
        """Run the decoder on embedded ``tokens``; every position sees all that are not padding."""
        mask, visible = tokens != self.vocab.pad, self.visible(tokens.shape[1], tokens.device)
        if visible is not None:
            return self.decode(x, attend_where(mask[:, None] & visible), memory)
        return self.decode(x, attend_real(mask, self._padded(mask)), memory)

    def denoise_part(self, x: Tensor, tokens: Tensor, memory: Memory, cache: KeyValueCache, part: Part) -> Tensor:
        """Run the decoder on the ``part`` of ``tokens [R, N]`` that is embedded in ``x [R, n, D]``.

        The other positions are seen as they were when their keys and values were put into ``cache``.
        """
        mask = tokens != self.vocab.pad
        extend = [cache.extend(layer, part) for layer in range(len(self.decoder))]
        return self.decode(x, attend_real(mask, self._padded(mask)), memory, extend)

    def _padded(self, mask: Tensor) -> bool:
        # Assumed to be padded on a GPU, because reading the mask costs a device synchronisation.
        return mask.device.type != "cpu" or not bool(mask.all())

    def decode(self, x: Tensor, attend: Attend, memory: Memory, extend: Sequence[Extend] | None = None) -> Tensor:
        """Run the decoder layers.

        Args:
            x: ``[R, N, D]`` embedded targets; ``R`` is a multiple of the ``B`` sources, rows of one source adjacent.
            attend: self-attention from the ``N`` positions to the ``L`` visible ones.
            memory: the encoded sources.
            extend: for each layer, maps the keys and values of ``x`` to those of all ``L`` positions.

        Returns:
            States ``[R, N, D]`` for :meth:`project`.
        """
        layers = zip(self.decoder, memory.key_values, extend or [uncached] * len(self.decoder), strict=True)
        for block, key_value, extend_layer in layers:
            x = block(x, attend, key_value, memory.attend, extend_layer)
        return x

    def project(self, x: Tensor, positions: Positions | None = None) -> Logits:
        """Return logits ``[P, V]`` at the ``positions`` of ``x [R, N, D]``, or ``[R, N, V]`` if None."""
        if positions is not None:
            x = x[positions]
        return self.logits(self.decoder_norm(x))

    def output_weight(self) -> Tensor:
        return self.tokens.weight
