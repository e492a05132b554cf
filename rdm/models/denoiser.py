"""Denoisers: a bidirectional network with a time embedding, and a length head for seq2seq tasks.

The leaf classes state their network in the constructor, because configurations are checked against its signature.
"""

from typing import Any

from torch import Tensor, nn

from rdm.cross_entropy import Logits, compute_logits
from rdm.models.cache import KeyValueCache, Part
from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.models.layers import Positions
from rdm.models.length import LengthHead
from rdm.models.llama import Llama
from rdm.models.self_conditioning import Guess, SelfConditioning, Unconditioned
from rdm.models.target_length import TargetLength, Untold
from rdm.models.wrapper import NetworkWrapper


class Denoiser(NetworkWrapper):
    """Predicts the clean text from a noised one and its step.

    Args:
        network: the Transformer.
        time: module that maps steps ``[...]`` to vectors ``[..., D]``, added to every position of the row or to each
            token. Embedding dropout does not cover it.
        self_conditioning: how a previous guess is read; by default not at all.
    """

    runs_on_parts = True
    """Whether :meth:`forward_part` is possible: all that positions know of each other is in the cached attention."""

    def __init__(
        self, network: EncoderDecoder | Llama, time: nn.Module, self_conditioning: SelfConditioning | None = None
    ) -> None:
        super().__init__(network)
        self.time = time
        network.initialise_module(time)
        self.self_conditioning = self_conditioning or Unconditioned()

    def forward(
        self,
        x_t: Tensor,
        t: Tensor,
        memory: Any = None,
        positions: Positions | None = None,
        guess: Guess | None = None,
    ) -> Logits:
        """Return logits of the clean text.

        Args:
            x_t: ``[R, N]`` noised tokens; ``R`` is a multiple of the ``B`` sources, copies of one source adjacent.
            t: steps of the rows ``[R]``, 1..T, or of their tokens ``[R, N]``, 0 if they are denoised.
            memory: the encoded sources; None for a network without encoder.
            positions: where to project to the vocabulary; None means everywhere.
            guess: a previous guess of the clean text, if there is one.

        Returns:
            ``[P, V]`` in row-major order of the positions, or ``[R, N, V]``.
        """
        x = self.embed(x_t, t)
        if guess is not None:
            x = x + self.self_conditioning(self.network.tokens, guess)
        return self.network.project(self.network.denoise(x, x_t, memory), positions)

    def forward_part(
        self, x_t: Tensor, t: Tensor, memory: Any, positions: Tensor, cache: KeyValueCache, part: Part
    ) -> Tensor:
        """Return logits ``[P, V]`` at ``positions`` (a mask within ``part``), running the network on ``part`` only.

        The other positions are represented by their keys and values in ``cache``.
        """
        x = part.take(self.embed(x_t, t))
        states = self.network.denoise_part(x, x_t, memory, cache, part)
        return compute_logits(self.network.project(states, part.take(positions)))

    def embed(self, x_t: Tensor, t: Tensor) -> Tensor:
        """Return the input ``[R, N, D]`` of the decoder for ``x_t [R, N]`` at steps ``t``, ``[R]`` or ``[R, N]``."""
        return self.network.embed(x_t) + self.time(t.view(len(x_t), -1))


class OpenEndedDenoiser(Denoiser):
    """A denoiser of open-ended text: without a source, and without a length head.

    >>> import torch
    >>> from rdm.models.layers import TimeEmbedding
    >>> from rdm.vocab import Vocab
    >>> denoiser = OpenEndedDenoiser(Llama(Vocab(size=9), 8, 16, heads=2, layers=1), TimeEmbedding(8))
    >>> denoiser(torch.tensor([[5, 1, 7]]), t=torch.tensor([3])).shape
    torch.Size([1, 3, 9])
    """

    def __init__(self, network: Llama, time: nn.Module, self_conditioning: SelfConditioning | None = None) -> None:
        super().__init__(network, time, self_conditioning)


class Seq2SeqDenoiser(Denoiser):
    """A denoiser that reads a source and predicts the length of the target from it.

    Args:
        network: the Transformer.
        time, self_conditioning: see :class:`Denoiser`.
        target_length: how the target length is added to the decoder input; by default not at all.
        length_head: predicts the length from the encoder states; by default from their mean.

    >>> import torch
    >>> from rdm.models.layers import TimeEmbedding
    >>> from rdm.vocab import Vocab
    >>> denoiser = Seq2SeqDenoiser(EncoderDecoder(Vocab(size=9), 8, 16, 2, 1, 1, max_length=6), TimeEmbedding(8))
    >>> denoiser.length_logits(denoiser.encode(torch.tensor([[2, 5, 6, 3]]))).shape
    torch.Size([1, 7])
    """

    def __init__(
        self,
        network: EncoderDecoder,
        time: nn.Module,
        target_length: TargetLength | None = None,
        length_head: LengthHead | None = None,
        self_conditioning: SelfConditioning | None = None,
    ) -> None:
        super().__init__(network, time, self_conditioning)
        self.target_length = target_length or Untold()
        self.length = length_head or LengthHead(network.dim, network.max_length)
        network.initialise_module(self.length)

    def embed(self, x_t: Tensor, t: Tensor) -> Tensor:
        return super().embed(x_t, t) + self.target_length(x_t != self.network.vocab.pad)

    def length_logits(self, memory: Memory) -> Tensor:
        """Return logits ``[B, max_length + 1]`` of the target length, ``<bos>`` and ``<eos>`` not counted."""
        return self.length(memory.states, memory.mask)
