"""Interface of metrics: a value with the signature of its computation, or the reason why there is no value."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rdm.describe import Described


@dataclass(frozen=True)
class Metric:
    """The result of a metric.

    Args:
        value: None if the metric was skipped; a missing value is never 0.
        signature: how the value was computed.
        error: standard error of the value, if known.
        skipped: why there is no value.
        settings: description of the scorer.
    """

    name: str
    value: float | None
    signature: str = ""
    error: float | None = None
    skipped: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """The entry of a result row under the metric's name."""
        if self.value is None:
            return {"value": None, "skipped": self.skipped, "settings": self.settings}
        error = {} if self.error is None else {"error": round(self.error, 6)}
        return {"value": round(self.value, 6), **error, "signature": self.signature, "settings": self.settings}

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name} skipped: {self.skipped}"
        return f"{self.name} {self.value:.4g}" + (f" ± {self.error:.2g}" if self.error is not None else "")


@dataclass(frozen=True)
class Texts:
    """The input of a metric, for ``n`` sources.

    Args:
        hypotheses: ``n`` texts.
        references: one or more lists of ``n`` texts.
        sources: ``n`` texts.
        candidates: for each source all texts its hypothesis was selected from.
    """

    hypotheses: Sequence[str]
    references: Sequence[Sequence[str]]
    sources: Sequence[str]
    candidates: Sequence[Sequence[str]]


class Skipped(Exception):
    """Raised by a scorer that cannot compute a value; the message says what it needs."""


class Scorer(Described, ABC):
    """Computes one metric. Subclasses set ``name`` and implement :meth:`score`."""

    name: str

    def __call__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] = (),
        candidates: Sequence[Sequence[str]] = (),
    ) -> Metric:
        """Compute the metric; for the arguments see :class:`Texts`."""
        metric = self.compute(Texts(hypotheses, references, sources, candidates))
        return replace(metric, settings=self.describe())

    def compute(self, texts: Texts) -> Metric:
        """Compute the metric; one that cannot be computed is skipped with a reason."""
        try:
            value, signature = self.score(texts)
        except Skipped as reason:
            return Metric(self.name, None, skipped=str(reason))
        return Metric(self.name, value, signature)

    @abstractmethod
    def score(self, texts: Texts) -> tuple[float, str]:
        """Return value and signature, or raise :class:`Skipped`."""
