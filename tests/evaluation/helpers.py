"""What several tests of evaluation share: checks of metrics, result rows."""

from typing import Any

from rdm.evaluation.metrics.base import Metric
from rdm.evaluation.results import Row


def number(metric: Metric) -> float:
    assert metric.value is not None, metric.skipped
    return metric.value


def assert_skipped(metric: Metric, reason: str) -> None:
    assert metric.value is None
    assert reason in str(metric.skipped)
    assert metric.row() == {"value": None, "skipped": metric.skipped, "settings": metric.settings}
    assert "skipped: " in str(metric)


def make_row(strategy: str, steps: int | None, value: float | None, seed: int = 1, **more: Any) -> Row:
    """A result row without settings of the decoding; a ``value`` of None is a skipped metric."""
    bleu = {"value": value, "signature": "nrefs:1"} if value is not None else {"value": None, "skipped": "needs x"}
    return {
        "run": "outputs/a",
        "recipe": "1234",
        "train_seed": 1,
        "data": "toy",
        "system": "rdm_absorbing",
        "metrics": {"sacrebleu": bleu},
        "strategy": strategy,
        "steps": steps,
        "seed": seed,
        "split": "test",
        "sentences": 10,
        "sentences_per_second": 5.0,
        **more,
    }
