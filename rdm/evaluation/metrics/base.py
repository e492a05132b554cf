"""What a metric is: a number with how it was computed, or the reason why there is none."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """A value and its signature; without a value, why it was skipped. A missing value is never 0."""

    name: str
    value: float | None
    signature: str = ""
    error: float | None = None  # standard error of the value, where there is one
    skipped: str | None = None

    def row(self) -> dict[str, Any]:
        """What a result row keeps under the metric's name."""
        if self.value is None:
            return {"value": None, "skipped": self.skipped}
        error = {} if self.error is None else {"error": round(self.error, 6)}
        return {"value": round(self.value, 6), **error, "signature": self.signature}

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name} skipped: {self.skipped}"
        return f"{self.name} {self.value:.4g}" + (f" ± {self.error:.2g}" if self.error is not None else "")


@dataclass(frozen=True)
class Texts:
    """What is scored; ``n`` sources."""

    hypotheses: Sequence[str]  # n texts
    references: Sequence[Sequence[str]]  # one or more lists of n texts
    sources: Sequence[str]  # n texts: what was given
    candidates: Sequence[Sequence[str]]  # for each source, all texts its hypothesis was chosen from


class Skipped(Exception):
    """Raised by a scorer that cannot give a value here; the message says what it needs."""


class Scorer(ABC):
    """Computes one metric."""

    name: str

    def __call__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] = (),
        candidates: Sequence[Sequence[str]] = (),
    ) -> Metric:
        """The metric of ``hypotheses``; see :class:`Texts`."""
        return self.measure(Texts(hypotheses, references, sources, candidates))

    def measure(self, texts: Texts) -> Metric:
        """The metric, or why there is none."""
        try:
            value, signature = self.score(texts)
        except Skipped as reason:
            return Metric(self.name, None, skipped=str(reason))
        return Metric(self.name, value, signature)

    @abstractmethod
    def score(self, texts: Texts) -> tuple[float, str]:
        """Value and signature, or :class:`Skipped`."""
