"""Settings of an evaluation, as result rows record them and as the "already evaluated" check and tables compare them.

Everything in a row is compared except :data:`IGNORED`, so an option that is new in some component needs no entry here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rdm.describe import flatten
from rdm.evaluation.metrics.base import Scorer
from rdm.evaluation.results import Row
from rdm.hashing import settings_hash

Settings = dict[str, Any]
"""Dotted key to value, e.g. ``{"decoding.transition": "Unconditional", "decoding.transition.gumbel_scale": 0.0}``."""

IGNORED = (
    "seed", "train_seed",  # tables average over seeds
    "recipe",  # compared by `run`: all runs of a recipe count as its first run
    "system", "strategy", "steps",  # lines and columns of the tables
    "candidates", "sources_cut",  # follow from the arguments of the decoding and from the data
    "evaluation", "hypotheses", "checkpoint",  # hashes and paths
    "metrics",  # those of the table are compared by signature and settings
    "sentences_per_second", "calls_per_sentence", "tokens_per_call", "training", "machine", "commit", "time",  # cost
)  # fmt: skip

TEXT_SETTINGS = (
    "transition", "schedule", "proposal", "lengths", "length_candidates", "candidates", "selection", "pruning",
    "length_penalty", "most_tokens",
)  # fmt: skip
"""Settings of the decoding in older rows, which have text at the top level instead of a ``decoding`` entry."""


def decoding_settings(
    strategy: str, steps: int | None, candidates: int, description: Mapping[str, Any]
) -> dict[str, Any]:
    """The part of a result row that says how text was decoded.

    Args:
        strategy: name of the decoding.
        steps: iterations; None for decodings that write one token at a time.
        candidates: texts decoded per source.
        description: ``describe()`` of the decoding.
    """
    arguments = {name: value for name, value in description.items() if name not in ("name", "steps")}
    return {"strategy": strategy, "steps": steps, "candidates": candidates, "decoding": arguments}


def evaluation_hash(settings: Row, scorers: Iterable[Scorer], draws: int | Literal["all"] | None) -> str:
    """Hash of an evaluation: equal hashes mean that a stored row already has the result.

    Args:
        settings: everything the row records before decoding starts, seeds included.
        scorers: the metrics.
        draws: Monte-Carlo draws of the likelihood; None if it is not computed.
    """
    metrics = {scorer.name: scorer.describe() for scorer in scorers}
    return settings_hash({**settings, "metrics": metrics, "likelihood": draws})


def compared_settings(row: Row, metrics: Sequence[str]) -> Settings:
    """The settings by which a table of ``metrics`` tells rows apart, in the order in which labels name them."""
    decoding = row.get("decoding")
    rest = {name: value for name, value in row.items() if name not in IGNORED}
    if decoding is None:
        texts = {name: row[name] for name in TEXT_SETTINGS if name in row}
        decoding = {"class": "recorded as text", **texts}
        rest = {name: value for name, value in rest.items() if name not in texts}
    measured = {name: row["metrics"][name] for name in metrics if metric_value(row, name) is not None}
    how = {name: {**entry.get("settings", {}), "signature": entry.get("signature")} for name, entry in measured.items()}
    first = {"choices": row.get("choices") or {}, "run": row["run"], "decoding": decoding}
    return flatten({**first, **{name: value for name, value in rest.items() if name not in first}, "metrics": how})


def metric_value(row: Row, metric: str) -> float | None:
    """The value of a metric; None if it was skipped or not requested."""
    return row["metrics"].get(metric, {}).get("value")
