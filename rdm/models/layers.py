"""The parts a Transformer is made of. ``D`` is the width, ``H`` the number of heads."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from rdm.errors import require
from rdm.vocab import Vocab

# Added to the logit of an id that must not be predicted. Its probability is exactly 0, yet nothing becomes infinite,
# and the number fits into half precision.
BARRED = -3e4

KeyValue = tuple[Tensor, Tensor]
"""Keys and values, each ``[B, H, S, D / H]``."""

Extend = Callable[[KeyValue], KeyValue]
"""What self-attention looks at, given the keys and values of its own input."""

Attend = Callable[..., Tensor]
"""Queries, keys and values, each ``[R, H, N, D / H]``, to what each position has gathered from those it may see."""

Positions = Tensor | tuple[Tensor, ...]
"""``P`` positions of ``[R, N]`` in row-major order: true in a mask, or their rows and columns.

A mask has to be counted first, and for that a GPU is waited for.
"""


def attention(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Scaled dot-product attention; on a CPU in float32 always, because its gradient takes four times as long in bf16.

    What has no numbers stands for a GPU (:mod:`rdm.counting`).
    """
    elsewhere = query.device.type != "cpu" or isinstance(query, FakeTensor)
    if elsewhere or not torch.is_autocast_enabled("cpu"):
        return functional.scaled_dot_product_attention(query, key, value, **options)
    with torch.autocast("cpu", enabled=False):
        mixed = functional.scaled_dot_product_attention(query.float(), key.float(), value.float(), **options)
    return mixed.to(query.dtype)


everything: Attend = attention
"""Every position sees all positions."""

causal: Attend = partial(attention, is_causal=True)
"""Every position sees itself and those before it."""


def where(mask: Tensor) -> Attend:
    """A position sees those where ``mask`` (``[B, N, S]`` or broadcast to it) is true."""
    return partial(attention, attn_mask=mask[:, None])


def left_to_right(start: int, length: int, device: torch.device) -> Attend:
    """Of ``length`` new positions each sees itself and all before it, among them ``start`` older ones."""
    if length == 1:
        return everything
    if start == 0:
        return causal
    return where(torch.ones(1, length, start + length, dtype=torch.bool, device=device).tril(start))


def only_these(key_value: KeyValue) -> KeyValue:
    """Self-attention that sees its input and nothing before it."""
    return key_value


def check_sizes(**sizes: int) -> None:
    """Refuse sizes of a model that are not at least 1."""
    for name, size in sizes.items():
        require(size >= 1, f"model.{name} must be at least 1, got {size}")


class Attention(nn.Module):
    """Multi-head attention whose keys and values can be computed once and used many times."""

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
        """Keys and values of ``memory [B, S, D]``."""
        key, value = self.key_value(memory).chunk(2, -1)
        return self._split(key), self._split(value)

    def forward(self, x: Tensor, memory: KeyValue, attend: Attend) -> Tensor:
        """Attend from ``x [R, N, D]`` to ``B`` memories.

        ``R`` may be a multiple of ``B``: the rows of one memory stand next to each other (noised copies, length
        candidates, beams) and share its keys and values, because queries do not look at each other. All of them must
        then see the same: everything, or where a mask ``[B, 1, S]`` is true.
        """
        rows, length, _ = x.shape
        groups = len(memory[0])
        query = self._split(self.query(x).reshape(groups, -1, x.shape[-1]))
        mixed = attend(query, *memory, dropout_p=self.dropout if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, -1))


class Dropout(nn.Dropout):
    """Dropout from uniform draws where PyTorch's own are slow: on a CPU Bernoulli draws cost four times as much."""

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
    """Self-attention, cross-attention where there is a memory, feed-forward; each inside a residual."""

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
        if cross:
            self.cross_attention = Attention(dim, heads, attention_dropout)
            self.around_cross = Residual(dim, dropout, pre_norm)
        self.feed_forward = FeedForward(dim, hidden, activation_dropout)
        self.around_feed_forward = Residual(dim, dropout, pre_norm)

    def remember(self, memory: Tensor) -> KeyValue:
        """Keys and values of the cross-attention for ``memory [B, S, D]``."""
        return self.cross_attention.project(memory)

    def forward(
        self,
        x: Tensor,
        attend: Attend,
        memory: KeyValue | None = None,
        attend_memory: Attend = everything,
        extend: Extend = only_these,
    ) -> Tensor:
        x = self.around_self(x, lambda y: self.self_attention(y, extend(self.self_attention.project(y)), attend))
        if memory is not None:
            x = self.around_cross(x, lambda y: self.cross_attention(y, memory, attend_memory))
        return self.around_feed_forward(x, self.feed_forward)


class Embedding(nn.Module):
    """Token embedding with a learned position *concatenated* to it, then projected back to the width (CMLMC)."""

    def __init__(self, tokens: nn.Embedding, max_positions: int, dropout: float) -> None:
        super().__init__()
        dim = tokens.embedding_dim
        self.tokens = tokens
        self.positions = nn.Embedding(max_positions, dim)
        self.project = nn.Linear(2 * dim, dim)
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(dim)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Tokens ``[R, N]`` at positions ``start, start + 1, ...`` to vectors ``[R, N, D]``.

        Both are scaled, or positions would be lost beside the tokens at first. The projection of the concatenation is a
        sum of two projections, so positions are projected once, not a row.
        """
        token_weight, position_weight = (self.project.weight * self.scale).chunk(2, 1)
        places = self.positions.weight[start : start + x.shape[1]]
        positions = functional.linear(places, position_weight, self.project.bias)
        return self.dropout(functional.linear(self.tokens(x), token_weight) + positions)


class TimeEmbedding(nn.Module):
    """The step ``t`` as sinusoids, through a two-layer MLP."""

    frequencies: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        half = dim // 2
        frequencies = torch.exp(-math.log(10_000) * torch.arange(half) / half)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.mlp = nn.Sequential(nn.Linear(2 * half, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t: Tensor) -> Tensor:
        """Steps ``[R]`` to vectors ``[R, D]``."""
        angles = t[:, None] * self.frequencies
        return self.mlp(torch.cat([angles.sin(), angles.cos()], -1))


class Timeless(nn.Module):
    """For a denoiser that is not told the step."""

    def forward(self, t: Tensor) -> Tensor:
        """Zeros ``[R, 1]``."""
        return torch.zeros(len(t), 1, device=t.device)


def initialise(module: nn.Module, std: float) -> None:
    """Weights normal, biases zero, as in BERT. For ``Module.apply``."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Restricted(nn.Module, ABC):
    """A network that can be told which ids it must not predict: ``output_bias [V]`` is added to its logits."""

    output_bias: Tensor

    def __init__(self, vocab: Vocab) -> None:
        super().__init__()
        self.vocab = vocab
        self.register_buffer("output_bias", torch.zeros(vocab.size))

    @abstractmethod
    def output_weight(self) -> Tensor:
        """``[V, D]``"""

    def to_vocabulary(self, states: Tensor) -> Tensor:
        """Logits ``[..., V]`` from states ``[..., D]``."""
        return functional.linear(states, self.output_weight(), self.output_bias)

    def restrict(self, predictable: Tensor) -> None:
        """Never predict the ids that are false in ``predictable [V]``."""
        self.output_bias.copy_(torch.where(predictable, 0.0, BARRED))
