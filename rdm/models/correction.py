"""The denoiser of CMLMC: decoder layers with an additional causal self-attention."""

from typing import Any, cast

from torch import Tensor, nn

from rdm.models.denoiser import Seq2SeqDenoiser
from rdm.models.encoder_decoder import EncoderDecoder
from rdm.models.layers import Attention, Block, Residual, attend_causally


class CausalSublayer(nn.Module):
    """Causal self-attention with a residual connection, of the size of the self-attention of ``block``.

    Padding on the right needs no mask, because no real token comes after it.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        attention, around = block.self_attention, block.around_self
        dim = attention.out.out_features
        self.attention = Attention(dim, attention.heads, attention.dropout)
        self.around = Residual(dim, around.dropout.p, around.pre_norm)

    def forward(self, x: Tensor) -> Tensor:
        return self.around(x, lambda y: self.attention(y, self.attention.project(y), attend_causally))


class CorrectingDenoiser(Seq2SeqDenoiser):
    """A denoiser whose decoder layers attend to all positions, then causally, then to the source (CMLMC).

    The causal attention orders the positions, which distinguishes tokens predicted alike at neighbouring positions.
    Positions are concatenated to tokens, as in every :class:`~rdm.models.layers.Embedding`. The arguments are those of
    :class:`~rdm.models.denoiser.Seq2SeqDenoiser`.

    >>> import torch
    >>> from rdm.models.layers import Timeless
    >>> from rdm.vocab import Vocab
    >>> denoiser = CorrectingDenoiser(EncoderDecoder(Vocab(size=9), 8, 16, 2, 1, 1, max_length=6), Timeless())
    >>> memory = denoiser.encode(torch.tensor([[2, 5, 6, 3]]))
    >>> denoiser(torch.tensor([[2, 1, 3]]), torch.tensor([1]), memory).shape
    torch.Size([1, 3, 9])
    """

    runs_on_parts = False  # the causal attention would see the positions of the part only

    def __init__(self, network: EncoderDecoder, time: nn.Module, **parts: Any) -> None:
        super().__init__(network, time, **parts)
        for layer in network.decoder:
            block = cast(Block, layer)
            block.after_self = CausalSublayer(block)
            network.initialise_module(block.after_self)
