"""A causal denoiser: it reads the tokens in the order in which they were denoised, and predicts one at any position.

The input at each place is a token, its position, and the position that is to be predicted next (sigma-GPT, Pannatier et
al., 2024). In training the whole text is read in one order, so that one pass gives a loss for every token, each with
another number of visible tokens, as in an autoregressive model; a bidirectional denoiser learns from the masked tokens
only, all of which see the same ones.
"""

import torch
from torch import Tensor

from rdm.cross_entropy import Logits
from rdm.errors import require
from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.models.layers import Positions, attend_causally, attend_where
from rdm.models.length import LengthHead
from rdm.models.target_length import VectorTable
from rdm.models.wrapper import NetworkWrapper

MASKS_ONLY = "system=any_order predicts masked tokens only, but this decoding asks for others; try decoding=rdm_commit"


class AnyOrderDenoiser(NetworkWrapper):
    """Predicts masked tokens from the source and the other tokens.

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
    runs_on_parts = False

    def __init__(self, network: EncoderDecoder, length_head: LengthHead | None = None) -> None:
        super().__init__(network)
        # Beside the learned position of the network, counted from the start.
        self.from_end, self.next_from_start, self.next_from_end = (
            VectorTable(network.dim, network.max_length) for _ in range(3)
        )
        self.length = length_head or LengthHead(network.dim, network.max_length)
        network.initialise_module(self.length)

    def in_order(self, tokens: Tensor, order: Tensor, memory: Memory, positions: Positions) -> Logits:
        """Return logits of each token given those before it in an order.

        Args:
            tokens: ``[R, N]`` clean tokens; ``R`` is a multiple of the ``B`` sources, rows of one source adjacent.
            order: ``[R, N]`` permutation of the positions, padding last.
            memory: the encoded sources.
            positions: ``P`` places ``i`` in the order: the token at ``order[i + 1]`` is predicted.

        Returns:
            ``[P, V]``.
        """
        following = torch.cat([order[:, 1:], order[:, -1:]], 1)
        x = self._embed(tokens.gather(1, order), order, following, self._last(tokens))
        return self.network.project(self.network.decode(x, attend_causally, memory), positions)

    def forward(self, x_t: Tensor, t: Tensor, memory: Memory, positions: Positions | None = None) -> Logits:
        """Return logits at masked positions, each given all tokens of its row that are not masked.

        Visible tokens are read from left to right, after ``<eos>``. The last of them is read once for
        each masked position, at the place of that position, so that a row has as many places as tokens.

        Args:
            x_t: ``[R, N]`` noised tokens.
            t: ``[R]`` steps; they are not used, because the number of masks shows them.
            memory: the encoded sources.
            positions: where to project to the vocabulary; None means everywhere, and is defined for masks only.
        """
        vocab = self.network.vocab
        masked, pad = x_t == vocab.mask, x_t == vocab.pad
        if positions is not None:
            require(bool(masked[positions].all()), MASKS_ONLY)
        number = torch.arange(x_t.shape[1], device=x_t.device)
        kind = (x_t != vocab.eos).long().masked_fill(masked, 2).masked_fill(pad, 3)
        order = (kind * x_t.shape[1] + number).argsort(1)
        visible = (~masked & ~pad).sum(1, keepdim=True)
        asks = number >= visible  # [R, N], in the order: places that ask for a masked token
        last = (visible - 1).clamp(min=0)
        at = torch.where(asks, order.gather(1, last), order)
        following = torch.where(asks, order, torch.cat([order[:, 1:], order[:, -1:]], 1))
        x = self._embed(x_t.gather(1, at), at, following, self._last(x_t))
        before = number < last
        here = torch.eye(len(number), dtype=torch.bool, device=x_t.device)
        seen = torch.where(asks[..., None], before[:, None] | here, torch.ones_like(here).tril())
        states = self.network.decode(x, attend_where(seen), memory)
        place = torch.empty_like(order).scatter_(1, order, number.expand_as(order))
        return self.network.project(states.gather(1, place[..., None].expand_as(states)), positions)

    def length_logits(self, memory: Memory) -> Tensor:
        """Return logits ``[B, max_length + 1]`` of the target length, ``<bos>`` and ``<eos>`` not counted."""
        return self.length(memory.states, memory.mask)

    def _last(self, tokens: Tensor) -> Tensor:
        return (tokens != self.network.vocab.pad).sum(1, keepdim=True) - 1

    def _embed(self, tokens: Tensor, at: Tensor, following: Tensor, last: Tensor) -> Tensor:
        """Embed ``tokens [R, N]`` at positions ``at`` that ask for ``following``; ``last [R, 1]`` is that of <eos>."""
        x = self.network.target_embedding.at(tokens, at) + self.from_end.look_up((last - at).clamp(min=0))
        asked = self.next_from_start.look_up(following) + self.next_from_end.look_up((last - following).clamp(min=0))
        return x + asked
