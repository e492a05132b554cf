"""The interface of decoding strategies, as scripts and callbacks use them."""

from abc import ABC, abstractmethod

from rdm.decoding.trace import Recording, Trace
from rdm.describe import Described


class Decoding(Described, ABC):
    """A decoding strategy without a model; ``System.check`` raises if it does not fit a system.

    Attributes:
        name: name of the strategy in result rows.
        steps: maximum number of iterations; None if an output takes one iteration per token.
    """

    name: str
    steps: int | None

    @property
    @abstractmethod
    def candidates(self) -> int:
        """Number of candidates decoded per source."""

    @abstractmethod
    def __str__(self) -> str:
        """Return a short description for progress bars and headings."""

    @abstractmethod
    def trace(self) -> Recording:
        """Return a new observer for ``System.generate`` that records every iteration."""


class IteratedDecoding(Decoding):
    """A strategy that updates the whole text in up to ``steps`` iterations."""

    steps: int

    def __str__(self) -> str:
        return f"{self.name}, {self.steps} iterations"

    def trace(self) -> Recording:
        return Trace()
