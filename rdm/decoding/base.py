"""What the scripts and callbacks know of a decoding strategy."""

from abc import ABC, abstractmethod
from typing import Any

from rdm.decoding.trace import Recording, Trace


class Decoding(ABC):
    """A strategy with a ``name``; which systems can be decoded by it is for the system to say (``System.check``)."""

    name: str

    @abstractmethod
    def __str__(self) -> str:
        """The strategy in a few words, for progress bars and headings."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a result row says of it; ``steps`` is None where an output takes as many iterations as it has tokens."""

    @abstractmethod
    def trace(self) -> Recording:
        """A fresh observer for ``System.generate`` that keeps what the strategy does."""


class IteratedDecoding(Decoding):
    """A strategy that goes over the whole text ``steps`` times."""

    steps: int

    def __str__(self) -> str:
        return f"{self.name}, {self.steps} iterations"

    def trace(self) -> Trace:
        return Trace()
