"""The Llama network: pre-RMSNorm, rotary positions, SwiGLU, no biases, separate output embedding.

Each layer is handed an :data:`Attend`, so that one network serves as a bidirectional denoiser and as a causal language
model, with or without a cache. Packed text has no padding.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rdm.cross_entropy import Logits, compute_logits
from rdm.errors import require
from rdm.models.cache import KeyValueCache, Part
from rdm.models.layers import (
    Attend,
    KeyValue,
    Positions,
    attend_everywhere,
    attend_left_to_right,
    attend_where,
    check_sizes,
)
from rdm.models.network import Restricted
from rdm.vocab import Vocab

Rotate = Callable[[Tensor], Tensor]


class Rotary(nn.Module):
    """Rotary position embedding.

    Coordinates ``i`` and ``i + width / 2`` at position ``n`` rotate by ``n * base ** (-2 i / width)`` radians. The
    product of a rotated query and a rotated key depends on their distance only.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, width: int, max_length: int, base: float = 10_000.0) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, width, 2).double() / width)
        angles = torch.arange(max_length)[:, None] * frequencies
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, positions: int | Tensor = 0) -> Tensor:
        """Rotate ``x [..., N, width]``; ``positions`` is the first one, or ``[R, N]`` for ``x [R, H, N, width]``."""
        if isinstance(positions, int):
            cos, sin = (table[positions : positions + x.shape[-2]] for table in (self.cos, self.sin))
        else:
            cos, sin = (table[positions][:, None] for table in (self.cos, self.sin))
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).type_as(x)


class RotaryAttention(nn.Module):
    """Multi-head self-attention with rotary positions."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, rotate_query: Rotate, rotate_key: Rotate, attend: Attend) -> Tensor:
        query, key, value = self.query_key_value(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(attend(rotate_query(query), rotate_key(key), value).transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """``W_out (silu(W_gate x) * W_in x)``."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_in = nn.Linear(dim, 2 * hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.gate_in(x).chunk(2, -1)
        return self.out(functional.silu(gate) * value)


class LlamaBlock(nn.Module):
    """``x + attention(norm(x))``, then ``x + feed_forward(norm(x))``."""

    def __init__(self, dim: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = rms_norm(dim), rms_norm(dim)
        self.attention = RotaryAttention(dim, heads)
        self.feed_forward = SwiGLU(dim, hidden)

    def forward(self, x: Tensor, rotate_query: Rotate, rotate_key: Rotate, attend: Attend) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotate_query, rotate_key, attend)
        return x + self.feed_forward(self.feed_forward_norm(x))


def rms_norm(dim: int) -> nn.RMSNorm:
    """Return the layer ``g * x / sqrt(mean(x ** 2) + 1e-6)``."""
    return nn.RMSNorm(dim, eps=1e-6)


class Llama(Restricted):
    """Token embedding, blocks and output embedding.

    Args:
        vocab: size and special ids.
        dim, hidden, heads, layers: width, width of the feed-forward layers, attention heads, depth.
        max_length: maximum number of positions, the size of the training windows.
        init_std: standard deviation of the initial weights.
        checkpoint_gradients: keep only the input of each block for the backward pass and recompute the rest: less
            memory, a third more work.
        fused_cross_entropy: compute the logits of the training loss in chunks, and again in the backward pass: less
            memory, a third more work in the projection to the vocabulary.

    >>> network, tokens = Llama(Vocab(size=9), 8, 16, heads=2, layers=1), torch.tensor([[5, 6, 7]])
    >>> network.project(network.denoise(network.embed(tokens))).shape
    torch.Size([1, 3, 9])
    """

    def __init__(
        self,
        vocab: Vocab,
        dim: int = 1024,
        hidden: int = 3072,
        heads: int = 16,
        layers: int = 24,
        max_length: int = 256,
        init_std: float = 0.02,
        checkpoint_gradients: bool = False,
        fused_cross_entropy: bool = False,
    ) -> None:
        super().__init__(vocab, init_std, fused_cross_entropy)
        check_sizes(dim=dim, hidden=hidden, heads=heads, layers=layers, max_length=max_length)
        require(dim % (2 * heads) == 0, f"model.dim ({dim}) must be a multiple of twice model.heads ({heads})")
        self.dim, self.heads, self.max_length = dim, heads, max_length
        self.checkpoint_gradients = checkpoint_gradients
        self.tokens = nn.Embedding(vocab.size, dim)
        self.rotary = Rotary(dim // heads, max_length + 1)  # <bos> may precede the text
        self.blocks = nn.ModuleList(LlamaBlock(dim, hidden, heads) for _ in range(layers))
        self.norm = rms_norm(dim)
        self.output = nn.Linear(dim, vocab.size, bias=False)
        self.initialise_module(self)

    def forward(
        self, x: Tensor, attends: Iterable[Attend], positions: int | Tensor = 0, queries: Tensor | None = None
    ) -> Tensor:
        """Return states ``[R, N, D]`` for embedded tokens ``[R, N, D]``.

        Args:
            x: the embedded tokens.
            attends: the attention of each block.
            positions: the first position, or all of them, ``[R, N]``.
            queries: ``[R, N]`` positions by which queries are rotated; by default those of the tokens.
        """
        if isinstance(positions, int):
            end = positions + x.shape[1]
            require(end <= self.max_length, f"the text has {end} tokens, more than model.max_length={self.max_length}")
        rotate_key = partial(self.rotary, positions=positions)
        rotate_query = rotate_key if queries is None else partial(self.rotary, positions=queries)
        for block, attend in zip(self.blocks, attends, strict=False):
            if self.checkpoint_gradients and torch.is_grad_enabled():
                # A block draws no random numbers, so no random state has to be kept.
                x = checkpoint(
                    block, x, rotate_query, rotate_key, attend, use_reentrant=False, preserve_rng_state=False
                )
            else:
                x = block(x, rotate_query, rotate_key, attend)
        return x

    def encode(self, source: Tensor) -> None:
        """Return None: a prefix is part of the text, and no encoder reads it."""

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Embed tokens ``[R, N]`` as ``[R, N, D]``, wherever they ``start``: positions are rotations in the blocks."""
        return self.tokens(tokens)

    def denoise(self, x: Tensor, tokens: Tensor | None = None, memory: None = None) -> Tensor:
        """Run all blocks on embedded tokens; every position sees all others."""
        visible = self.visible(x.shape[1], x.device)
        return self(x, repeat(attend_everywhere if visible is None else attend_where(visible)))

    def denoise_part(self, x: Tensor, tokens: Tensor, memory: None, cache: KeyValueCache, part: Part) -> Tensor:
        """Run all blocks on the ``part`` of ``tokens [R, N]`` that is embedded in ``x [R, n, D]``.

        The other positions are seen as they were when their keys and values were put into ``cache``.
        """

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend_everywhere(query, *cache.extend(layer, part)((key, value)))

        return self(x, (partial(attend, layer) for layer in range(len(self.blocks))), part.columns)

    def project(self, x: Tensor, positions: Positions | None = None) -> Logits:
        """Return logits ``[P, V]`` at the ``positions`` of ``x [R, N, D]``, or ``[..., V]`` if None."""
        if positions is not None:
            x = x[positions]
        return self.logits(self.norm(x))

    def output_weight(self) -> Tensor:
        return self.output.weight


class Reader:
    """Runs a Llama causally, token by token, with a cache of keys and values.

    Args:
        network: the Llama.
        rows, positions: size of the cache: number of rows, and maximum number of tokens in each.
    """

    def __init__(self, network: Llama, rows: int, positions: int) -> None:
        weight = network.tokens.weight
        shape = (rows, network.heads, positions, network.dim // network.heads)
        self.network, self.length = network, 0
        self.memories: list[KeyValue] = [(weight.new_empty(shape), weight.new_empty(shape)) for _ in network.blocks]

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append ``tokens [R, n]`` to the rows and return the logits ``[R, V]`` of the token after the last."""
        attends = (partial(self._attend, memory) for memory in self.memories)
        states = self.network(self.network.tokens(tokens), attends, self.length)
        self.length += tokens.shape[1]
        return compute_logits(self.network.project(states[:, -1]))

    def keep(self, rows: Tensor) -> None:
        """Keep only these ``rows`` (indices or mask)."""
        self.memories = [(keys[rows], values[rows]) for keys, values in self.memories]

    def _attend(self, memory: KeyValue, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        start, end = self.length, self.length + query.shape[2]
        for kept, new in zip(memory, (key, value), strict=True):
            kept[:, :, start:end] = new
        keys, values = (kept[:, :, :end].type_as(query) for kept in memory)
        return attend_left_to_right(start, end - start, query.device)(query, keys, values)
