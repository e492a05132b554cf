"""The denoiser for open-ended text: a Llama without the causal mask, and a light time embedding."""

from functools import partial
from itertools import repeat

from torch import Tensor, nn

from rdm.models.layers import Positions, everything, initialise
from rdm.models.llama import Llama


class DecoderOnly(nn.Module):
    """Every position sees all others; what is given stands among them, so there is no memory and no length head.

    Args:
        network: the Transformer.
        time: steps ``[R]`` to what is added to every position of a row, ``[R, D]``.
    """

    def __init__(self, network: Llama, time: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.max_length = network.max_length
        self.time = time.apply(partial(initialise, std=network.init_std))

    def restrict(self, predictable: Tensor) -> None:
        """Never predict the ids that are false in ``predictable [V]``."""
        self.network.restrict(predictable)

    def forward(self, x_t: Tensor, t: Tensor, memory: None = None, positions: Positions | None = None) -> Tensor:
        """Logits of the clean text.

        Args:
            x_t: ``[R, N]`` noised tokens.
            t: ``[R]`` steps, 1..T.
            memory: there is none.
            positions: what to project to the vocabulary; None means all.

        Returns:
            ``[P, V]`` in row-major order of the positions, or ``[R, N, V]``.
        """
        x = self.network.tokens(x_t) + self.time(t)[:, None]
        states = self.network(x, repeat(everything))
        return self.network.project(states if positions is None else states[positions])
