"""Classifier-free guidance: a denoiser with its source compared with one without."""

from collections.abc import Callable

from torch import Tensor

Denoise = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(tokens [R, N], steps, active [R, N] bool) -> logits [P, V]`` at the ``P`` active positions, in row-major order.

``steps`` are those of the rows ``[R]`` or of their tokens ``[R, N]``."""


class Guided:
    """A denoiser with the logits of ``p(x_0 | source)^scale p(x_0)^(1 - scale)`` (D-CFG, Schiff et al., 2024).

    Each call is two calls of the network.

    Args:
        conditional: the denoiser that reads the source.
        unconditional: the denoiser with an empty source.
        scale: 1 is the conditional denoiser; larger values follow the source more closely.

    >>> import torch
    >>> uniform, certain = torch.zeros(1, 2), torch.tensor([[0.0, 1.0]])
    >>> Guided(lambda *_: certain, lambda *_: uniform, scale=1.5)(uniform, uniform, uniform)
    tensor([[0.0000, 1.5000]])
    """

    def __init__(self, conditional: Denoise, unconditional: Denoise, scale: float) -> None:
        self.conditional, self.unconditional, self.scale = conditional, unconditional, scale

    def __call__(self, tokens: Tensor, t: Tensor, active: Tensor) -> Tensor:
        # Normalising the two adds a constant to every row of logits, and so it can be left out.
        return self.unconditional(tokens, t, active).lerp(self.conditional(tokens, t, active), self.scale)
