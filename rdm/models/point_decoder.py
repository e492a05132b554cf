"""Diffusion over embeddings with an encoder and a decoder, as in SeqDiffuSeq (Yuan et al., 2022).

The source has an embedding of the full width and an encoder of its own. In :mod:`rdm.models.diffuseq` source words pass
through the narrow embedding that is diffused, and one stack of layers has to read and to translate.
"""

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from rdm.models.cdcd import CDCDDenoiser
from rdm.models.diffuseq import EncodedSource, PointTransformer, SelfConditionedDiffuSeq
from rdm.models.layers import Block, Embedding, attend_everywhere, attend_where


class PointDecoder(PointTransformer):
    """Encodes the source, and reads noised points in the place of the target's words in a decoder.

    ``layers`` is the depth of the encoder and of the decoder.
    """

    halves = 1

    def build_stacks(self, block: Callable[..., Block], layers: int) -> None:
        self.encoder = nn.ModuleList(block(cross=False) for _ in range(layers))
        self.blocks = nn.ModuleList(block(cross=True) for _ in range(layers))
        dim = self.norm.normalized_shape[0]
        self.source_embedding = Embedding(nn.Embedding(self.vocab.size, dim), self.width, self.dropout.p)
        self.encoder_norm = nn.LayerNorm(dim)

    def encode(self, source: Tensor) -> EncodedSource:
        mask = source != self.vocab.pad
        x, attend = self.source_embedding(source), attend_where(mask[:, None])
        for block in self.encoder:
            x = block(x, attend)
        return EncodedSource(self.encoder_norm(x), mask)

    def states(self, points: Tensor, t: Tensor, source: EncodedSource) -> Tensor:
        x = points + self.positions.weight[: points.shape[1]] + self.time_embedding(t)[:, None]
        x, attend_source = self.dropout(self.norm(x)), attend_where(source.mask[:, None])
        for block in self.blocks:
            x = block(x, attend_everywhere, cast(Block, block).remember(source.states), attend_source)
        return self.final_norm(x)


class SeqDiffuSeqDenoiser(PointDecoder, SelfConditionedDiffuSeq):
    """Predicts clean word embeddings in a decoder, with self-conditioning.

    >>> import torch
    >>> from rdm.vocab import Vocab
    >>> denoiser = SeqDiffuSeqDenoiser(0.5, vocab=Vocab(size=9), embedding=4, dim=8, heads=2, layers=1, max_length=6)
    >>> source = denoiser.encode(torch.tensor([[2, 5, 6, 3]]))
    >>> denoiser(torch.zeros(1, 8, 4), t=torch.tensor([3]), source=source).shape
    torch.Size([1, 8, 4])
    """


class CDCDDecoder(PointDecoder, CDCDDenoiser):
    """Predicts the words behind noised points in a decoder.

    >>> import torch
    >>> from rdm.vocab import Vocab
    >>> denoiser = CDCDDecoder(Vocab(size=9), 4, 8, 16, heads=2, layers=1, max_length=6)
    >>> source = denoiser.encode(torch.tensor([[2, 5, 6, 3]]))
    >>> denoiser(torch.zeros(1, 8, 4), torch.tensor([3.0]), source).shape
    torch.Size([1, 8, 9])
    """
