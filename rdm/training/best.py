"""The best validation so far, by which ``best.ckpt`` is selected and training stopped early."""

from collections.abc import Mapping
from typing import Any, Literal

from rdm.errors import require

ValidationMetric = Literal["val/bleu", "val/loss", "val/nats_per_token", "val/perplexity"]
HIGHER_IS_BETTER = ("val/bleu",)


class BestValidation:
    """The best value of a metric over all validations of a run.

    Args:
        metric: name of the metric.
        patience: number of consecutive validations without improvement after which training stops; None for no limit.

    >>> best = BestValidation("val/loss", patience=1)
    >>> [(best.update({"val/loss": value}), best.exhausted) for value in (2.0, 1.0, 1.5)]
    [(True, False), (True, False), (False, True)]
    """

    def __init__(self, metric: ValidationMetric, patience: int | None = None) -> None:
        require(patience is None or patience >= 1, f"patience must be at least 1, got {patience}")
        self.metric, self.patience = metric, patience
        self.value: float | None = None
        self.without_improvement = 0

    def update(self, metrics: Mapping[str, Any]) -> bool:
        """Add a validation; return whether it is the best so far."""
        known = ", ".join(name for name in metrics if name.startswith("val/"))
        require(self.metric in metrics, f"best={self.metric} is not computed in this run; choose one of {known}")
        value = float(metrics[self.metric])
        sign = 1 if self.metric in HIGHER_IS_BETTER else -1
        improved = value == value and (self.value is None or sign * value > sign * self.value)
        self.value = value if improved else self.value
        self.without_improvement = 0 if improved else self.without_improvement + 1
        return improved

    @property
    def exhausted(self) -> bool:
        """Whether training should stop."""
        return self.patience is not None and self.without_improvement >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Return metric, value and number of validations without improvement."""
        return {"metric": self.metric, "value": self.value, "without_improvement": self.without_improvement}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state; that of another metric is ignored."""
        if state.get("metric") == self.metric:
            self.value, self.without_improvement = state["value"], state["without_improvement"]
