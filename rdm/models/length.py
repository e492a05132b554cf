"""The length head: predicts the number of target tokens from the source."""

from torch import Tensor, nn


class LengthHead(nn.Module):
    """Mean of the encoder states and a linear layer with one class for each length ``0 .. classes - 1``.

    >>> import torch
    >>> LengthHead(dim=8, classes=5)(torch.zeros(2, 3, 8), torch.ones(2, 3, dtype=torch.bool)).shape
    torch.Size([2, 5])
    """

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, classes)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return logits ``[B, classes]`` for states ``[B, S, D]``; ``mask [B, S]`` is false at padding."""
        weights = mask / mask.sum(1, keepdim=True)
        return self.score((states * weights[..., None]).sum(1))
