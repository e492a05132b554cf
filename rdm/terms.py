"""Terms of a training loss, as objectives and systems return them."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Term:
    """One term of a training loss, as a sum over a micro-batch.

    The mean is ``total`` divided by the ``unit`` count of the whole optimiser step; the loss is the sum of
    ``factor * mean`` over all terms. The system that returns a term also declares its unit
    (:meth:`rdm.systems.base.System.counts`).
    """

    name: str
    total: Tensor
    unit: str
    factor: float = 1.0
