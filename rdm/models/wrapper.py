"""The base of denoisers and causal decoders."""

from typing import Any

from torch import Tensor, nn

from rdm.describe import Described
from rdm.models.encoder_decoder import EncoderDecoder
from rdm.models.llama import Llama


class NetworkWrapper(Described, nn.Module):
    """Holds a network that subclasses run bidirectionally or causally.

    Args:
        network: the Transformer.
    """

    looks_ahead = True
    """Whether a position sees later ones, as attention-mask annealing needs."""

    def __init__(self, network: EncoderDecoder | Llama) -> None:
        super().__init__()
        self.network = network
        self.max_length = network.max_length

    def restrict(self, predictable: Tensor) -> None:
        """Exclude the ids that are false in ``predictable [V]`` from prediction."""
        self.network.restrict(predictable)

    def encode(self, source: Tensor) -> Any:
        """Encode sources ``[B, S]``; None if the network has no encoder."""
        return self.network.encode(source)
