"""The denoiser of the paper: a Transformer that sees all positions at once and is told the step, and a length head."""

from torch import Tensor, nn

from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.models.layers import Positions
from rdm.models.length import LengthHead


class Denoiser(nn.Module):
    """Guesses the clean text, and before that its length.

    Args:
        network: the Transformer.
        time: steps ``[R]`` to what is added to every position of a row, ``[R, D]``.
    """

    def __init__(self, network: EncoderDecoder, time: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.time = time.apply(network.initialise)
        self.length = LengthHead(network.dim, network.max_length + 1).apply(network.initialise)
        self.max_length = network.max_length

    def restrict(self, predictable: Tensor) -> None:
        """Never predict the ids that are false in ``predictable [V]``."""
        self.network.restrict(predictable)

    def encode(self, source: Tensor) -> Memory:
        """Read sources ``[B, S]``."""
        return self.network.encode(source)

    def length_logits(self, memory: Memory) -> Tensor:
        """Scores ``[B, max_length + 1]`` of how many tokens each target has, ``<bos>`` and ``<eos>`` not counted."""
        return self.length(memory.states, memory.mask)

    def forward(self, x_t: Tensor, t: Tensor, memory: Memory, positions: Positions | None = None) -> Tensor:
        """Logits of the clean text.

        Args:
            x_t: ``[R, N]`` noised tokens; ``R`` is a multiple of the ``B`` sources, copies of one source together.
            t: ``[R]`` steps, 1..T.
            positions: what to project to the vocabulary; None means all.

        Returns:
            ``[P, V]`` in row-major order of the positions, or ``[R, N, V]``.
        """
        x = self.network.target_embedding(x_t) + self.time(t)[:, None]
        return self.network.project(self.network.decode(x, self.network.all_of(x_t), memory), positions)
