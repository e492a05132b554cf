"""The network of DisCo (Kasai et al., 2020): every position is predicted from its own set of visible tokens.

Queries start from positions alone. Keys and values of *every* layer are embeddings of tokens and positions, which no
layer changes. Nothing about a token that is not visible to a position can therefore reach it through other positions.
"""

from typing import cast

from torch import Tensor

from rdm.cross_entropy import Logits
from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.models.layers import Attend, Block, KeyValue, Positions, attend_where
from rdm.models.length import LengthHead
from rdm.models.wrapper import NetworkWrapper


class DisCoDenoiser(NetworkWrapper):
    """Predicts each token from the source and the tokens that are visible to its position.

    >>> import torch
    >>> from rdm.vocab import Vocab
    >>> denoiser = DisCoDenoiser(EncoderDecoder(Vocab(size=9), 8, 16, 2, 1, 1, max_length=6))
    >>> tokens, visible = torch.tensor([[2, 7, 3]]), torch.tensor([[[True, False, True]] * 3])
    >>> denoiser(tokens, visible, denoiser.encode(torch.tensor([[2, 5, 6, 3]]))).shape
    torch.Size([1, 3, 9])
    """

    network: EncoderDecoder

    def __init__(self, network: EncoderDecoder) -> None:
        super().__init__(network)
        self.length = LengthHead(network.dim, network.max_length + 1)
        network.initialise_module(self.length)

    def forward(self, tokens: Tensor, visible: Tensor, memory: Memory, positions: Positions | None = None) -> Logits:
        """Return logits of the token at each position.

        Args:
            tokens: ``[R, N]``; ``R`` is a multiple of the ``B`` sources, rows of one source adjacent.
            visible: ``[R, N, N]`` bool, whether position n sees token m; at least one token must be visible.
            memory: the encoded sources.
            positions: where to project to the vocabulary; None means everywhere.

        Returns:
            ``[P, V]`` in row-major order of the positions, or ``[R, N, V]``.
        """
        rows, length = tokens.shape
        context, attend = self.network.embed(tokens), attend_where(visible)
        x = self.network.target_embedding.positions_only(length).expand(rows, -1, -1)
        for layer, key_value in zip(self.network.decoder, memory.key_values, strict=True):
            x = read_context(cast(Block, layer), x, context, attend, key_value, memory.attend)
        return self.network.project(x, positions)

    def length_logits(self, memory: Memory) -> Tensor:
        """Return logits ``[B, max_length + 1]`` of the target length, ``<bos>`` and ``<eos>`` not counted."""
        return self.length(memory.states, memory.mask)


def read_context(
    block: Block, x: Tensor, context: Tensor, attend: Attend, memory: KeyValue, attend_memory: Attend
) -> Tensor:
    """Run a decoder block whose self-attention reads ``context [R, N, D]`` instead of its input ``x [R, N, D]``."""
    attention, around = block.self_attention, block.around_self
    key_value = attention.project(around.norm(context) if around.pre_norm else context)
    x = around(x, lambda y: attention(y, key_value, attend))
    x = block.around_cross(x, lambda y: block.cross_attention(y, memory, attend_memory))
    return block.around_feed_forward(x, block.feed_forward)
