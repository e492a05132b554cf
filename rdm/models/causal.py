"""The encoder-decoder Transformer with a causal decoder, and its cache."""

from functools import partial

import torch
from torch import Tensor

from rdm.cross_entropy import Logits
from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.models.layers import KeyValue, Positions, attend_left_to_right
from rdm.models.wrapper import NetworkWrapper


class Cache:
    """Keys and values of the decoded positions, for each decoder layer."""

    def __init__(self) -> None:
        self.key_values: list[KeyValue] = []

    @property
    def length(self) -> int:
        """Number of cached positions."""
        return self.key_values[0][0].shape[2] if self.key_values else 0

    def extend(self, layer: int, new: KeyValue) -> KeyValue:
        """Append the keys and values of new positions and return all of this layer."""
        if layer == len(self.key_values):
            self.key_values.append(new)
        else:
            key, value = self.key_values[layer]
            self.key_values[layer] = torch.cat([key, new[0]], 2), torch.cat([value, new[1]], 2)
        return self.key_values[layer]

    def select(self, rows: Tensor) -> None:
        """Keep these rows, by index; a row may be repeated."""
        count = len(self.key_values[0][0])
        # Greedy search mostly keeps all rows: avoid the copy.
        if not torch.equal(rows, torch.arange(count, device=rows.device)):
            self.key_values = [(key[rows], value[rows]) for key, value in self.key_values]


class CausalDecoder(NetworkWrapper):
    """Predicts the next token from the source and the tokens before it.

    >>> from rdm.vocab import Vocab
    >>> decoder = CausalDecoder(EncoderDecoder(Vocab(size=9), 8, 16, 2, 1, 1, max_length=6))
    >>> decoder(torch.tensor([[2, 7]]), decoder.encode(torch.tensor([[2, 5, 6, 3]]))).shape
    torch.Size([1, 2, 9])
    """

    network: EncoderDecoder

    def __init__(self, network: EncoderDecoder) -> None:
        super().__init__(network)

    def forward(
        self, tokens: Tensor, memory: Memory, positions: Positions | None = None, cache: Cache | None = None
    ) -> Logits:
        """Return the logits of the token after each of ``tokens``.

        Padding on the right needs no mask, because no real token comes after it.

        Args:
            tokens: ``[R, N]``; ``R`` is a multiple of the ``B`` sources, rows of one source adjacent.
            memory: the encoded sources.
            positions: where to project to the vocabulary; None means everywhere.
            cache: the positions before ``tokens``; it is extended by ``tokens``.

        Returns:
            ``[P, V]`` in row-major order of the positions, or ``[R, N, V]``.
        """
        cache = cache or Cache()
        start, length = cache.length, tokens.shape[1]
        attend = attend_left_to_right(start, length, tokens.device)
        extend = [partial(cache.extend, layer) for layer in range(len(self.network.decoder))]
        x = self.network.decode(self.network.embed(tokens, start), attend, memory, extend)
        return self.network.project(x, positions)

    def continuation(self, memory: Memory) -> "Continuation":
        """Return the decoder with its sources and an empty cache, for beam search."""
        return Continuation(self, memory)


class Continuation:
    """A decoder with its sources and its cache, as :class:`~rdm.decoding.beam.BeamSearch` calls it."""

    def __init__(self, decoder: CausalDecoder, memory: Memory) -> None:
        self.decoder, self.memory, self.cache = decoder, memory, Cache()

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append ``tokens [R]`` and return the logits ``[R, V]`` of the next token."""
        return self.decoder(tokens[:, None], self.memory, cache=self.cache).squeeze(1)

    def select(self, sources: Tensor, rows: Tensor) -> None:
        """Keep these sources and these rows, which are sorted by source."""
        self.cache.select(rows)
        if len(sources) < len(self.memory.mask):
            self.memory = self.memory.select(sources)
