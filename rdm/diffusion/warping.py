"""Time warping (CDCD): the distribution of noise levels follows the loss of the network."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdm.describe import Described
from rdm.errors import require

GAIN = 30.0
"""Parameters are stored divided by this: they have to move by several nats at the learning rate of a network."""
FIT_FACTOR = 1e-3
"""Weight of the fit in the loss. It shares no parameter with the network, so only clipping by norm sees it."""


class TimeWarp(Described, nn.Module):
    """A monotone, piecewise-linear function ``F(t)`` of ``log t``, fitted to the loss at noise level ``t``.

    ``F(t) / F(t_max)`` is a distribution function. Levels drawn from it are dense where the loss rises steeply, that
    is where a little less noise makes words much more certain; time is not spent where the loss is 0 or constant.

    Args:
        smallest, largest: the range of ``t``.
        bins: number of linear pieces.

    >>> warp = TimeWarp(smallest=1.0, largest=100.0, bins=4)
    >>> warp.levels(torch.tensor([0.0, 0.5, 1.0])).round()          # before training: uniform in log t
    tensor([  1.,  10., 100.])
    """

    knots: Tensor

    def __init__(self, smallest: float = 1.0, largest: float = 300.0, bins: int = 100) -> None:
        super().__init__()
        require(0 < smallest < largest, f"system.warp needs 0 < smallest < largest, got {smallest} and {largest}")
        require(bins >= 1, f"system.warp.bins must be at least 1, got {bins}")
        self.smallest, self.largest = smallest, largest
        knots = torch.linspace(math.log(smallest), math.log(largest), bins + 1)
        self.register_buffer("knots", knots, persistent=False)
        self.log_increments = nn.Parameter(torch.full((bins,), -math.log(bins) / GAIN))

    def cumulative(self) -> Tensor:
        """Return ``F`` at the knots ``[bins + 1]``, from 0."""
        return functional.pad((GAIN * self.log_increments).exp().cumsum(0), (1, 0))

    def forward(self, t: Tensor) -> Tensor:
        """Return ``F(t)``, the predicted loss, in the shape of ``t``."""
        place = (t.log() - self.knots[0]) / (self.knots[-1] - self.knots[0]) * (len(self.knots) - 1)
        left = place.floor().clamp(0, len(self.knots) - 2).long()
        values = self.cumulative()
        return values[left] + (place - left) * (values[left + 1] - values[left])

    @torch.no_grad()
    def levels(self, u: Tensor) -> Tensor:
        """Return ``t = F^{-1}(u F(t_max))`` for ``u`` in ``[0, 1]``, of any shape."""
        values = self.cumulative()
        wanted = u * values[-1]
        left = (torch.searchsorted(values, wanted, right=True) - 1).clamp(0, len(values) - 2)
        share = (wanted - values[left]) / (values[left + 1] - values[left])
        return (self.knots[left] + share * (self.knots[1] - self.knots[0])).exp().clamp(self.smallest, self.largest)

    def misfit(self, t: Tensor, losses: Tensor) -> Tensor:
        """Return ``(F(t) - loss)^2`` ``[R]`` for observed losses ``[R]`` at levels ``t [R]``; they get no gradient."""
        return (self(t) - losses.detach()).square()
