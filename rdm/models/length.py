"""The length head: how many tokens the target has, guessed from the source."""

from torch import Tensor, nn


class LengthHead(nn.Module):
    """Mean of the encoder states, one linear layer, one class for each length ``0 .. classes - 1``."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, classes)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Scores ``[B, classes]`` from states ``[B, S, D]``; ``mask [B, S]`` is true on tokens."""
        weights = mask / mask.sum(1, keepdim=True)
        return self.score((states * weights[..., None]).sum(1))
