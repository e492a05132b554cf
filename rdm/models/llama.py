"""The Llama network: RMSNorm before each sublayer, rotary positions, SwiGLU, no biases, an output embedding of its own.

What a position may see is not the network's business: each layer is handed an :data:`Attend`, so that one network is
a bidirectional denoiser, a causal language model, and the same with a cache. There is no padding in packed text.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rdm.errors import require
from rdm.models.layers import Attend, KeyValue, Restricted, check_sizes, initialise, left_to_right
from rdm.vocab import Vocab


class Rotary(nn.Module):
    """Turns coordinates ``i`` and ``i + width / 2`` of position ``n`` by ``n * base ** (-2 i / width)`` radians.

    The product of a turned query and a turned key then depends on their distance, not on where they stand.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, width: int, max_length: int, base: float = 10_000.0) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, width, 2).double() / width)
        angles = torch.arange(max_length)[:, None] * frequencies
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Turn ``x [..., N, width]``, whose first row stands at position ``first``."""
        cos, sin = (table[first : first + x.shape[-2]] for table in (self.cos, self.sin))
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).type_as(x)


class SelfAttention(nn.Module):
    """Multi-head attention with rotary positions."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, turn: Callable[[Tensor], Tensor], attend: Attend) -> Tensor:
        query, key, value = self.query_key_value(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(attend(turn(query), turn(key), value).transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """``W_out (silu(W_gate x) * W_in x)``."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_in = nn.Linear(dim, 2 * hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.gate_in(x).chunk(2, -1)
        return self.out(functional.silu(gate) * value)


class Block(nn.Module):
    """``x + attention(norm(x))``, then ``x + feed_forward(norm(x))``."""

    def __init__(self, dim: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = norm(dim), norm(dim)
        self.attention = SelfAttention(dim, heads)
        self.feed_forward = SwiGLU(dim, hidden)

    def forward(self, x: Tensor, turn: Callable[[Tensor], Tensor], attend: Attend) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turn, attend)
        return x + self.feed_forward(self.feed_forward_norm(x))


def norm(dim: int) -> nn.RMSNorm:
    """``g * x / sqrt(mean(x ** 2) + 1e-6)``."""
    return nn.RMSNorm(dim, eps=1e-6)


class Llama(Restricted):
    """Token embedding, blocks and output embedding.

    Args:
        vocab: size and special ids.
        dim, hidden, heads, layers: width, width of the feed-forward layers, attention heads, depth.
        max_length: most positions; text is trained on in windows of this size.
        init_std: of the initial weights.
        checkpoint_gradients: keep only the input of each block for the backward pass and compute the rest again:
            less memory, a third more work.
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
    ) -> None:
        super().__init__(vocab)
        check_sizes(dim=dim, hidden=hidden, heads=heads, layers=layers, max_length=max_length)
        require(dim % (2 * heads) == 0, f"model.dim ({dim}) must be a multiple of twice model.heads ({heads})")
        self.dim, self.heads, self.max_length, self.init_std = dim, heads, max_length, init_std
        self.checkpoint_gradients = checkpoint_gradients
        self.tokens = nn.Embedding(vocab.size, dim)
        self.rotary = Rotary(dim // heads, max_length)
        self.blocks = nn.ModuleList(Block(dim, hidden, heads) for _ in range(layers))
        self.norm = norm(dim)
        self.output = nn.Linear(dim, vocab.size, bias=False)
        self.apply(partial(initialise, std=init_std))

    def forward(self, x: Tensor, attends: Iterable[Attend], first: int = 0) -> Tensor:
        """States ``[R, N, D]`` from embedded tokens ``[R, N, D]`` at the positions from ``first`` on.

        ``attends`` gives each block, in turn, what its positions see.
        """
        end = first + x.shape[1]
        require(end <= self.max_length, f"the text has {end} tokens, more than model.max_length={self.max_length}")
        turn = partial(self.rotary, first=first)
        for block, attend in zip(self.blocks, attends, strict=False):
            if self.checkpoint_gradients and torch.is_grad_enabled():
                # Nothing is random in a block, so no random state has to be kept.
                x = checkpoint(block, x, turn, attend, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, turn, attend)
        return x

    def project(self, states: Tensor) -> Tensor:
        """Logits ``[..., V]`` from states ``[..., D]``."""
        return self.to_vocabulary(self.norm(states))

    def output_weight(self) -> Tensor:
        return self.output.weight


class Reader:
    """A causal network that reads rows token by token and keeps the keys and values of what it has read.

    Args:
        rows, positions: how many rows are read, and the most tokens in each.
    """

    def __init__(self, network: Llama, rows: int, positions: int) -> None:
        weight = network.tokens.weight
        shape = (rows, network.heads, positions, network.dim // network.heads)
        self.network, self.length = network, 0
        self.memories: list[KeyValue] = [(weight.new_empty(shape), weight.new_empty(shape)) for _ in network.blocks]

    def __call__(self, tokens: Tensor) -> Tensor:
        """Read ``tokens [R, n]``, the next ones of every row; the logits ``[R, V]`` of what follows the last."""
        attends = (partial(self._attend, memory) for memory in self.memories)
        states = self.network(self.network.tokens(tokens), attends, first=self.length)
        self.length += tokens.shape[1]
        return self.network.project(states[:, -1])

    def keep(self, rows: Tensor) -> None:
        """Go on with these ``rows`` only (indices or bool)."""
        self.memories = [(keys[rows], values[rows]) for keys, values in self.memories]

    def _attend(self, memory: KeyValue, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        start, end = self.length, self.length + query.shape[2]
        for kept, new in zip(memory, (key, value), strict=True):
            kept[:, :, start:end] = new
        keys, values = (kept[:, :, :end].type_as(query) for kept in memory)
        return left_to_right(start, end - start, query.device)(query, keys, values)
