"""Self-conditioning: the previous guess as an additional input. Config group: ``diffusion/self_conditioning``.

Training shows a guess to half of the rows only, so that the network also works without one (Chen et al., 2023).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rdm.describe import Described


@dataclass(frozen=True)
class Guess:
    """A previous guess of the clean text: ``tokens [R, N]``, shown to the rows where ``shown [R]`` is true."""

    tokens: Tensor
    shown: Tensor


class SelfConditioning(Described, nn.Module, ABC):
    """A vector added to the input of the network at every position."""

    @abstractmethod
    def forward(self, tokens: nn.Embedding, guess: Guess) -> Tensor:
        """Return vectors ``[R, N, D]`` or broadcastable to it, from the network's token embedding."""


class Unconditioned(SelfConditioning):
    """Ignores the guess.

    >>> Unconditioned()(nn.Embedding(9, 4), Guess(torch.ones(2, 3, dtype=torch.long), torch.ones(2))).shape
    torch.Size([2, 1, 1])
    """

    def forward(self, tokens: nn.Embedding, guess: Guess) -> Tensor:
        return torch.zeros(len(guess.tokens), 1, 1, device=guess.tokens.device)


class PreviousGuess(SelfConditioning):
    """Adds a linear map of the embedded guess; it is 0 at first.

    Args:
        dim: width of the network.
        probability: of a row to see a guess in training.

    >>> PreviousGuess(4)(nn.Embedding(9, 4), Guess(torch.ones(2, 3, dtype=torch.long), torch.ones(2))).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, dim: int, probability: float = 0.5) -> None:
        super().__init__()
        self.probability = probability
        self.weight = nn.Parameter(torch.zeros(dim, dim))
        self.scale = math.sqrt(dim)

    def forward(self, tokens: nn.Embedding, guess: Guess) -> Tensor:
        embedded = nn.functional.linear(tokens(guess.tokens) * self.scale, self.weight)
        return embedded * guess.shown[:, None, None]
