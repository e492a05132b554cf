"""Terms of a training loss, as objectives and systems return them."""

from collections.abc import Mapping, Sequence
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


def mean_terms(terms: Sequence[Term], counts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean of each term by its name.

    Args:
        terms: terms with different names.
        counts: the denominators by unit.
    """
    names = [term.name for term in terms]
    if len(set(names)) < len(names):
        raise ValueError(f"the terms of a loss need different names, got {', '.join(names)}")
    unknown = {term.unit for term in terms} - counts.keys()
    if unknown:
        raise ValueError(f"System.counts does not declare {', '.join(sorted(unknown))}; it has {', '.join(counts)}")
    return {term.name: term.total / counts[term.unit] for term in terms}
