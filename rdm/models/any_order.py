"""Causal denoisers: they read the tokens in the order in which they were denoised, and predict one at any position.

The input at each place is a token, its position, and the position that is to be predicted next (sigma-GPT, Pannatier et
al., 2024). In training the whole text is read in one order, so that one pass gives a loss for every token, each with
another number of visible tokens, as in an autoregressive model; a bidirectional denoiser learns from the masked tokens
only, all of which see the same ones.
"""

from abc import ABC, abstractmethod
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import Logits, compute_logits
from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.models.layers import Attend, Positions, attend_causally, attend_where
from rdm.models.length import LengthHead
from rdm.models.llama import Llama
from rdm.models.network import BARRED
from rdm.models.target_length import VectorTable
from rdm.models.wrapper import NetworkWrapper

Ahead = tuple[Tensor, Tensor, Tensor]
"""Rows, and places ``i`` and ``j`` in an order, each ``[Q]``: the token at ``order[j]`` is predicted from the tokens at
``order[0] .. order[i]``. Sorted by row."""


class ReadsInOrder(NetworkWrapper, ABC):
    """Runs a network causally over tokens in any order."""

    network: EncoderDecoder | Llama
    runs_on_parts = False
    looks_ahead = False

    def unread(self, tokens: Tensor) -> Tensor:
        """Return where in ``tokens [R, N]`` (bool) a token is never read: padding, and what a network says itself."""
        return tokens == self.network.vocab.pad

    @abstractmethod
    def states(
        self, tokens: Tensor, at: Tensor, following: Tensor, attend: Attend, memory: Any, known: Tensor | None = None
    ) -> Tensor:
        """Run the network.

        Args:
            tokens: ``[R, N]`` tokens of the text, in the order of their positions.
            at: ``[R, N]`` position of the token that is read at each place.
            following: ``[R, N]`` position that is predicted there.
            attend: which places see which.
            memory: the encoded sources.
            known: ``[R]`` bool, which rows know the length of their text; None means all.

        Returns:
            states ``[R, N, D]`` of the places.
        """

    def in_order(
        self,
        tokens: Tensor,
        order: Tensor,
        memory: Any,
        positions: Positions,
        ahead: Ahead | None = None,
        known: Tensor | None = None,
    ) -> Logits:
        """Return logits of each token given those before it in an order.

        Args:
            tokens: ``[R, N]`` clean tokens; ``R`` is a multiple of the ``B`` sources, rows of one source adjacent.
            order: ``[R, N]`` permutation of the positions, tokens that are not read last.
            memory: the encoded sources; None for a network without encoder.
            positions: ``P`` places ``i`` in the order: the token at ``order[i + 1]`` is predicted.
            ahead: ``Q`` further predictions, of tokens that do not come next.
            known: ``[R]`` bool, which rows know the length of their text; None means all.

        Returns:
            ``[P + Q, V]``.
        """
        at, following, attend = order, next_in(order), attend_causally
        if ahead is not None:
            at, following, attend, slots = with_queries(order, ahead)
            positions = torch.cat([positions[0], slots[0]]), torch.cat([positions[1], slots[1]])
        return self.network.project(self.states(tokens, at, following, attend, memory, known), positions)

    def forward(self, x_t: Tensor, t: Tensor, memory: Any = None, positions: Positions | None = None) -> Logits:
        """Return logits at masked positions, each given all visible (not masked) tokens of its row.

        Visible tokens are read from left to right, and each is predicted from those before it. The last of them is read
        once for each masked position, at the place of that position, so that a row has as many places as tokens.

        Args:
            x_t: ``[R, N]`` noised tokens.
            t: ``[R]`` steps; they are not used, because the number of masks shows them.
            memory: the encoded sources; None for a network without encoder.
            positions: where to project to the vocabulary; None means everywhere, also at tokens that are not read,
                where logits have no meaning.
        """
        return self.network.project(self.states_of_tokens(x_t, memory), positions)

    def states_of_tokens(self, x_t: Tensor, memory: Any) -> Tensor:
        """Return states ``[R, N, D]``, by which the tokens of ``x_t [R, N]`` are predicted."""
        masked, unread = x_t == self.network.vocab.mask, self.unread(x_t)
        number = torch.arange(x_t.shape[1], device=x_t.device)
        order = ((masked + 2 * unread) * x_t.shape[1] + number).argsort(1)
        visible = (~masked & ~unread).sum(1, keepdim=True)
        asks = number >= visible  # [R, N], in the order: places that ask for a masked token
        last = (visible - 1).clamp(min=0)
        at = torch.where(asks, order.gather(1, last), order)
        following = torch.where(asks, order, next_in(order))
        before = number < last
        here = torch.eye(len(number), dtype=torch.bool, device=x_t.device)
        seen = torch.where(asks[..., None], before[:, None] | here, torch.ones_like(here).tril())
        states = self.states(x_t, at, following, attend_where(seen), memory)
        place = torch.empty_like(order).scatter_(1, order, number.expand_as(order))
        place = (place - (~masked & ~unread).long()).clamp(min=0)  # a visible token: at the visible one before it
        return states.gather(1, place[..., None].expand_as(states))


class AnyOrderDenoiser(ReadsInOrder):
    """Predicts masked tokens from the source and the other tokens.

    Positions are counted from the start and from the end, which tells the length. Learned vectors for the predicted
    position, also counted from both sides, are added to the input, except where it follows the token that is read. All
    vectors that an autoregressive network lacks are 0 at first, so one that starts from it predicts the same from left
    to right.

    Args:
        network: the Transformer.
        length_head: predicts the length from the encoder states; by default from their mean.

    >>> from rdm.vocab import Vocab
    >>> denoiser = AnyOrderDenoiser(EncoderDecoder(Vocab(size=9), 8, 16, 2, 1, 1, max_length=6))
    >>> memory, x_t = denoiser.encode(torch.tensor([[2, 5, 6, 3]])), torch.tensor([[2, 1, 7, 3]])
    >>> denoiser(x_t, torch.tensor([1]), memory, (torch.tensor([0]), torch.tensor([1]))).shape
    torch.Size([1, 9])
    """

    network: EncoderDecoder

    def __init__(self, network: EncoderDecoder, length_head: LengthHead | None = None) -> None:
        super().__init__(network)
        # Beside the learned position of the network, counted from the start.
        self.from_end, self.next_from_start, self.next_from_end = (
            VectorTable(network.dim, network.max_length) for _ in range(3)
        )
        self.length = length_head or LengthHead(network.dim, network.max_length)
        network.initialise_module(self.length)

    def forward(self, x_t: Tensor, t: Tensor, memory: Any = None, positions: Positions | None = None) -> Logits:
        logits = compute_logits(super().forward(x_t, t, memory, positions))
        return logits.index_fill(-1, torch.tensor(self.network.vocab.eos, device=x_t.device), BARRED)

    def unread(self, tokens: Tensor) -> Tensor:
        """Padding and ``<eos>``: positions from the end tell the length."""
        return super().unread(tokens) | (tokens == self.network.vocab.eos)

    def states(
        self, tokens: Tensor, at: Tensor, following: Tensor, attend: Attend, memory: Any, known: Tensor | None = None
    ) -> Tensor:
        last = (tokens != self.network.vocab.pad).sum(1, keepdim=True) - 1  # position of <eos>
        from_end = self.from_end.look_up((last - at).clamp(min=0))
        if known is not None:
            from_end = from_end * known[:, None, None]
        x = self.network.target_embedding.at(tokens.gather(1, at), at) + from_end
        predicted = self.next_from_start.look_up(following) + self.next_from_end.look_up(
            (last - following).clamp(min=0)
        )
        return self.network.decode(x + predicted * (following != at + 1)[..., None], attend, memory)

    def length_logits(self, memory: Memory) -> Tensor:
        """Return logits ``[B, max_length + 1]`` of the target length, ``<bos>`` and ``<eos>`` not counted."""
        return self.length(memory.states, memory.mask)


class OpenEndedAnyOrderDenoiser(ReadsInOrder):
    """Predicts masked tokens of open-ended text, which is read after ``<bos>``.

    A key is rotated by the position of its token, and a query by the position before the predicted one, so that
    attention scores depend on how far a token is from the predicted one. A learned vector for the distance from the
    token that is read to the predicted one is added to the input, except for the distance 1: from left to right the
    network is the autoregressive one.

    >>> from rdm.vocab import Vocab
    >>> denoiser = OpenEndedAnyOrderDenoiser(Llama(Vocab(size=9), 8, 16, heads=2, layers=1, max_length=3))
    >>> denoiser(torch.tensor([[5, 1, 7]]), t=torch.tensor([3])).shape
    torch.Size([1, 3, 9])
    """

    network: Llama

    def __init__(self, network: Llama) -> None:
        super().__init__(network)
        self.distance = VectorTable(network.dim, 2 * network.max_length)  # from -max_length to max_length

    def states(
        self, tokens: Tensor, at: Tensor, following: Tensor, attend: Attend, memory: Any, known: Tensor | None = None
    ) -> Tensor:
        distance = following - at
        vectors = self.distance.look_up(distance + self.max_length) * (distance != 1)[..., None]
        x = self.network.embed(tokens.gather(1, at)) + vectors
        return self.network(x, repeat(attend), at, queries=(following - 1).clamp(min=0))

    def states_of_tokens(self, x_t: Tensor, memory: Any) -> Tensor:
        return super().states_of_tokens(self.from_start(x_t), memory)[:, 1:]

    def from_start(self, tokens: Tensor) -> Tensor:
        """Prepend ``<bos>`` to ``tokens [R, N]``."""
        return functional.pad(tokens, (1, 0), value=self.network.vocab.bos)


def next_in(order: Tensor) -> Tensor:
    """Return the position after each one in ``order [R, N]``; the last is its own."""
    return torch.cat([order[:, 1:], order[:, -1:]], 1)


def with_queries(order: Tensor, ahead: Ahead) -> tuple[Tensor, Tensor, Attend, Positions]:
    """Add places that predict tokens further ahead: the token at ``order[i]`` is read once more for each of them.

    Returns:
        Positions that are read ``[R, N + E]`` and predicted ``[R, N + E]``, attention, and the places of ``ahead``.
    """
    rows, i, j = ahead
    width, per_row = order.shape[1], rows.bincount(minlength=len(order))
    slot = torch.arange(len(rows), device=order.device) - (per_row.cumsum(0) - per_row)[rows]
    extra = int(per_row.max())
    last = torch.zeros(len(order), extra, dtype=torch.long, device=order.device)
    following, at = order[:, :1].repeat(1, extra), order[:, :1].repeat(1, extra)
    last[rows, slot], at[rows, slot], following[rows, slot] = i, order[rows, i], order[rows, j]
    number = torch.arange(width + extra, device=order.device)
    seen = torch.ones(len(order), width + extra, width + extra, dtype=torch.bool, device=order.device).tril()
    seen[:, width:] = (number < last[..., None]) | (number == number[width:, None])
    places = torch.cat([order, at], 1), torch.cat([next_in(order), following], 1)
    return *places, attend_where(seen), (rows, width + slot)
