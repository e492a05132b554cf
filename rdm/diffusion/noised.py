"""Noised copies of a batch, and the signature of the denoiser that reads them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rdm.cross_entropy import Logits

Denoise = Callable[[Tensor, Tensor, Tensor | tuple[Tensor, ...]], Logits]
"""``(x_t [R, N], steps, positions) -> logits [P, V]`` at ``P`` positions in row-major order.

``steps`` are those of the rows ``[R]`` or of their tokens ``[R, N]``
(:meth:`~rdm.diffusion.process.DiffusionProcess.network_steps`). ``positions`` is a mask ``[R, N]`` or a pair of row and
column indices, each ``[P]``. A mask costs a device synchronisation. In training the logits may be a
:class:`~rdm.cross_entropy.Projection`, which the losses of :mod:`rdm.cross_entropy` compute in chunks;
:func:`~rdm.cross_entropy.compute_logits` gives the tensor.
"""


@dataclass(frozen=True)
class NoisedBatch:
    """Noised copies of a batch of clean sentences, as read by the denoiser and the objective.

    ``C`` copies of each of ``B`` sentences are stacked sentence by sentence into ``R = B * C`` rows.

    >>> x0 = torch.tensor([[5, 6, 7]])
    >>> NoisedBatch(x0, x_t=torch.tensor([[5, 1, 1]]), t=torch.tensor([2]), learnable=x0 > 4).noisy
    tensor([[False,  True,  True]])
    """

    x0: Tensor  # [R, N] clean tokens
    x_t: Tensor  # [R, N] noised tokens
    t: Tensor  # [R] step of each row, 1..T
    learnable: Tensor  # [R, N] bool: positions that may be noised; false at padding, prefixes and pinned symbols
    copies: int = 1  # C

    @property
    def noisy(self) -> Tensor:
        """``[R, N]`` bool: ``b_t = 0``, that is ``x_t != x_0``."""
        return self.x_t != self.x0

    def at(self, positions: Tensor | tuple[Tensor, ...]) -> "NoisedBatch":
        """Select ``P`` positions by mask or by row and column; every tensor becomes ``[P]``."""
        t = self.t[:, None].expand_as(self.x0)
        x0, x_t, t, learnable = (tensor[positions] for tensor in (self.x0, self.x_t, t, self.learnable))
        return NoisedBatch(x0, x_t, t, learnable, self.copies)

    def keep_clean(self, prefix: Tensor) -> "NoisedBatch":
        """Restore the clean tokens of a ``prefix`` (mask ``[R, N]`` or ``[N]``) and make them unlearnable.

        Where positions are noised independently, this is the same as if the prefix had never been noised.
        """
        learnable = self.learnable & ~prefix
        return replace(self, x_t=torch.where(prefix, self.x0, self.x_t), learnable=learnable)
