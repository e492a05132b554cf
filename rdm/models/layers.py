"""Transformer layers. ``D`` is the width, ``H`` the number of heads."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdm.describe import Described
from rdm.errors import require

KeyValue = tuple[Tensor, Tensor]
"""Keys and values, each ``[B, H, S, D / H]``."""

Extend = Callable[[KeyValue], KeyValue]
"""Maps the keys and values of a layer's input to all that its self-attention sees (a cache adds earlier positions)."""

Attend = Callable[..., Tensor]
"""Attention with a fixed visibility: ``(query, key, value) -> output``, each ``[R, H, N, D / H]``."""

Positions = Tensor | tuple[Tensor, ...]
"""``P`` positions of ``[R, N]`` in row-major order: a mask, or row and column indices.

A mask costs a device synchronisation, because its true values have to be counted.
"""


def float32_attention_on_cpu(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Scaled dot-product attention, in float32 under CPU autocast.

    On a CPU the gradient takes four times as long in bfloat16.
    """
    if query.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return functional.scaled_dot_product_attention(query, key, value, **options)
    with torch.autocast("cpu", enabled=False):
        mixed = functional.scaled_dot_product_attention(query.float(), key.float(), value.float(), **options)
    return mixed.to(query.dtype)


_backend: Attend = float32_attention_on_cpu


@contextmanager
def attention_backend(backend: Attend) -> Iterator[None]:
    """Compute all attention with ``backend`` inside the context, which must include the backward pass.

    >>> with attention_backend(functional.scaled_dot_product_attention):
    ...     attend_everywhere(*torch.zeros(3, 1, 2, 4, 8)).shape
    torch.Size([1, 2, 4, 8])
    """
    global _backend
    previous, _backend = _backend, backend
    try:
        yield
    finally:
        _backend = previous


def attend_everywhere(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Attention in which every position sees all positions."""
    return _backend(query, key, value, **options)


attend_causally: Attend = partial(attend_everywhere, is_causal=True)
"""Attention in which every position sees itself and earlier positions."""


def attend_where(mask: Tensor) -> Attend:
    """Return attention to the positions where ``mask`` (``[B, N, S]`` or broadcastable to it) is true."""
    return partial(attend_everywhere, attn_mask=mask[:, None])


def attend_left_to_right(start: int, length: int, device: torch.device) -> Attend:
    """Return causal attention of ``length`` new positions that follow ``start`` cached ones."""
    if length == 1:
        return attend_everywhere
    if start == 0:
        return attend_causally
    return attend_where(torch.ones(1, length, start + length, dtype=torch.bool, device=device).tril(start))


def uncached(key_value: KeyValue) -> KeyValue:
    """Let self-attention see its input only (an :data:`Extend`)."""
    return key_value


def check_sizes(**sizes: int) -> None:
    """Raise unless all sizes of a model are at least 1."""
    for name, size in sizes.items():
        require(size >= 1, f"model.{name} must be at least 1, got {size}")


class Attention(nn.Module):
    """Multi-head attention whose keys and values can be computed once and reused.

    >>> attention, x = Attention(dim=8, heads=2), torch.zeros(1, 3, 8)
    >>> attention(x, attention.project(x), attend_everywhere).shape
    torch.Size([1, 3, 8])
    """

    def __init__(self, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, memory: Tensor) -> KeyValue:
        """Return the keys and values of ``memory [B, S, D]``."""
        key, value = self.key_value(memory).chunk(2, -1)
        return self._split(key), self._split(value)

    def forward(self, x: Tensor, memory: KeyValue, attend: Attend) -> Tensor:
        """Attend from ``x [R, N, D]`` to ``B`` memories.

        ``R`` may be a multiple of ``B``: the rows of one memory are adjacent (noised copies, length candidates, beams)
        and share its keys and values. All of them must then see the same positions: all, or those where a mask
        ``[B, 1, S]`` is true.
        """
        rows, length, _ = x.shape
        groups = len(memory[0])
        query = self._split(self.query(x).reshape(groups, -1, x.shape[-1]))
        mixed = attend(query, *memory, dropout_p=self.dropout if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, -1))


class Dropout(nn.Dropout):
    """Dropout that draws uniform numbers on a CPU, where Bernoulli draws take four times as long."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not (self.training and 0 < self.p < 1):
            return super().forward(x)
        return x * torch.rand(x.shape).ge_(self.p).div_(1 - self.p).to(x.dtype)


class FeedForward(nn.Sequential):
    """Two linear layers with a ReLU between them."""

    def __init__(self, dim: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__(nn.Linear(dim, hidden), nn.ReLU(), Dropout(dropout), nn.Linear(hidden, dim))


class Residual(nn.Module):
    """``norm(x + f(x))`` (post-norm, as published) or ``x + f(norm(x))`` (pre-norm)."""

    def __init__(self, dim: int, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class Block(nn.Module):
    """Self-attention, optional cross-attention and feed-forward, each with a residual connection."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        heads: int,
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
        pre_norm: bool,
        cross: bool,
    ) -> None:
        super().__init__()
        self.self_attention = Attention(dim, heads, attention_dropout)
        self.around_self = Residual(dim, dropout, pre_norm)
        self.after_self: nn.Module = nn.Identity()  # a further sublayer, [R, N, D] -> [R, N, D]
        if cross:
            self.cross_attention = Attention(dim, heads, attention_dropout)
            self.around_cross = Residual(dim, dropout, pre_norm)
        self.feed_forward = FeedForward(dim, hidden, activation_dropout)
        self.around_feed_forward = Residual(dim, dropout, pre_norm)

    def remember(self, memory: Tensor) -> KeyValue:
        """Return the keys and values of the cross-attention for ``memory [B, S, D]``."""
        return self.cross_attention.project(memory)

    def forward(
        self,
        x: Tensor,
        attend: Attend,
        memory: KeyValue | None = None,
        attend_memory: Attend = attend_everywhere,
        extend: Extend = uncached,
    ) -> Tensor:
        x = self.around_self(x, lambda y: self.self_attention(y, extend(self.self_attention.project(y)), attend))
        x = self.after_self(x)
        if memory is not None:
            x = self.around_cross(x, lambda y: self.cross_attention(y, memory, attend_memory))
        return self.around_feed_forward(x, self.feed_forward)


class Embedding(nn.Module):
    """Token embedding *concatenated* with a learned position, projected back to the width (CMLMC).

    Dropout is applied to the result. A denoiser adds its time embedding afterwards, so dropout does not cover it: the
    step is one vector per row, and dropping parts of it would blur the noise level of the whole row.
    """

    def __init__(self, tokens: nn.Embedding, max_positions: int, dropout: float) -> None:
        super().__init__()
        dim = tokens.embedding_dim
        self.tokens = tokens
        self.positions = nn.Embedding(max_positions, dim)
        self.project = nn.Linear(2 * dim, dim)
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(dim)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Embed tokens ``[R, N]`` at positions ``start, start + 1, ...`` as ``[R, N, D]``.

        Tokens and positions are scaled alike; otherwise tokens would dominate at initialisation. The projection of the
        concatenation is a sum of two projections, so positions are projected once for all rows.
        """
        token_weight, _ = self._weights()
        return self.dropout(functional.linear(self.tokens(x), token_weight) + self._positions(start, x.shape[1]))

    def at(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embed tokens ``[R, N]`` at ``positions [R, N]`` as ``[R, N, D]``."""
        token_weight, _ = self._weights()
        every = self._positions(0, len(self.positions.weight))
        return self.dropout(functional.linear(self.tokens(x), token_weight) + functional.embedding(positions, every))

    def positions_only(self, length: int) -> Tensor:
        """Embed the positions ``0 .. length - 1`` without tokens as ``[1, N, D]``."""
        return self.dropout(self._positions(0, length)[None])

    def _positions(self, start: int, length: int) -> Tensor:
        _, position_weight = self._weights()
        return functional.linear(self.positions.weight[start : start + length], position_weight, self.project.bias)

    def _weights(self) -> tuple[Tensor, ...]:
        return (self.project.weight * self.scale).chunk(2, 1)


class TimeEmbedding(Described, nn.Module):
    """Embeds the step ``t`` by sinusoids and a two-layer MLP.

    >>> TimeEmbedding(dim=8)(torch.tensor([1, 50])).shape
    torch.Size([2, 8])
    """

    frequencies: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        half = dim // 2
        frequencies = torch.exp(-math.log(10_000) * torch.arange(half) / half)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.mlp = nn.Sequential(nn.Linear(2 * half, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t: Tensor) -> Tensor:
        """Embed steps ``[...]`` as ``[..., D]``."""
        angles = t[..., None] * self.frequencies
        return self.mlp(torch.cat([angles.sin(), angles.cos()], -1))


class Timeless(Described, nn.Module):
    """Time embedding of a denoiser that does not depend on the step."""

    def forward(self, t: Tensor) -> Tensor:
        """Return zeros ``[..., 1]``."""
        return torch.zeros(*t.shape, 1, device=t.device)
