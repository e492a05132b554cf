"""The autoregressive model: the same Transformer, whose decoder sees only what stands before."""

from functools import partial

import torch
from torch import Tensor, nn

from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.models.layers import KeyValue, Positions, left_to_right


class Cache:
    """Keys and values of the positions decoded so far, for each decoder layer."""

    def __init__(self) -> None:
        self.key_values: list[KeyValue] = []

    @property
    def length(self) -> int:
        return self.key_values[0][0].shape[2] if self.key_values else 0

    def extend(self, layer: int, new: KeyValue) -> KeyValue:
        """Add the keys and values of further positions; all of the layer so far are returned."""
        if layer == len(self.key_values):
            self.key_values.append(new)
        else:
            key, value = self.key_values[layer]
            self.key_values[layer] = torch.cat([key, new[0]], 2), torch.cat([value, new[1]], 2)
        return self.key_values[layer]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, by index; a row may be taken more than once."""
        count = len(self.key_values[0][0])
        if not torch.equal(rows, torch.arange(count, device=rows.device)):  # greedy search mostly keeps all: no copy
            self.key_values = [(key[rows], value[rows]) for key, value in self.key_values]


class CausalDecoder(nn.Module):
    """Guesses the next token from the source and the tokens before it."""

    def __init__(self, network: EncoderDecoder) -> None:
        super().__init__()
        self.network = network
        self.max_length = network.max_length

    def restrict(self, predictable: Tensor) -> None:
        """Never predict the ids that are false in ``predictable [V]``."""
        self.network.restrict(predictable)

    def encode(self, source: Tensor) -> Memory:
        """Read sources ``[B, S]``."""
        return self.network.encode(source)

    def forward(
        self, tokens: Tensor, memory: Memory, positions: Positions | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Logits of the token after each of ``tokens``.

        Padding on the right needs no mask: it stands after everything that is real.

        Args:
            tokens: ``[R, N]``; ``R`` is a multiple of the ``B`` sources, rows of one source together.
            positions: what to project to the vocabulary; None means all.
            cache: holds what came before ``tokens``, and is extended by them.

        Returns:
            ``[P, V]`` in row-major order of the positions, or ``[R, N, V]``.
        """
        cache = cache or Cache()
        start, length = cache.length, tokens.shape[1]
        attend = left_to_right(start, length, tokens.device)
        extend = [partial(cache.extend, layer) for layer in range(len(self.network.decoder))]
        x = self.network.decode(self.network.target_embedding(tokens, start), attend, memory, extend)
        return self.network.project(x, positions)


class Continuation:
    """Texts being written token by token, for :class:`~rdm.decoding.beam.BeamSearch`: a decoder, sources, a cache."""

    def __init__(self, decoder: CausalDecoder, memory: Memory) -> None:
        self.decoder, self.memory, self.cache = decoder, memory, Cache()

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append ``tokens [R]`` and return the logits ``[R, V]`` of the next."""
        return self.decoder(tokens[:, None], self.memory, cache=self.cache).squeeze(1)

    def select(self, sources: Tensor, rows: Tensor) -> None:
        """Go on with these of the sources and, sorted by source, these of the rows."""
        self.cache.select(rows)
        if len(sources) < len(self.memory.mask):
            self.memory = self.memory.select(sources)
