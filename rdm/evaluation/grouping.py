"""Which result rows share a cell of a table, and how its line is labelled.

Rows of one cell differ in seeds alone. Labels name the settings in which rows differ, in the column they belong to:

    system                             decoding                                          evaluation
    rdm_absorbing, reweighting linear  rdm, transition Unconditional, gumbel_scale 1.0   limit 100
    rdm_absorbing, reweighting linear  rdm, transition PosteriorStep                     limit 200
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rdm.evaluation.results import Row
from rdm.evaluation.settings import Settings, compared_settings, metric_value


class Line(NamedTuple):
    """The labels of a line: the model with how it was trained, the decoding, and how its output was measured."""

    system: str
    decoding: str
    evaluation: str = ""


Member = tuple[Row, Settings]
Groups = dict[Line, dict[int | None, list[Row]]]  # then by number of iterations: one row per seed

MODEL_SETTINGS = ("choices", "run", "checkpoint_step", "average", "int8")
"""Settings that make a model, by the first part of their keys; shown with the system."""
FOLLOWS_FROM = {"run": "choices.", "text": "split", "sentences": "split"}
"""Settings left out of labels where others, given by the start of their keys, already tell the rows apart."""


def group_rows(rows: Sequence[Row], metric: str, *others: str) -> Groups:
    """Group rows by system and decoding, then by number of iterations; the last row of a seed counts.

    Runs of one recipe differ in the seed alone and count as one.

    Args:
        metric: rows without it are left out; a row in which it was skipped replaces no row with a value.
        others: further metrics of the table, whose signatures and settings must agree within a group as well.
    """
    runs: dict[str, str] = {}
    systems: dict[str, list[Member]] = {}
    for row in (row for row in rows if metric in row["metrics"]):
        run = runs.setdefault(row["recipe"], row["run"])
        settings = compared_settings({**row, "run": run}, (metric, *others))
        systems.setdefault(row["system"], []).append((row, settings))
    table: dict[Line, dict[int | None, dict[tuple[int, int], Row]]] = {}
    for system, models in sorted(systems.items()):
        trained = _differences(models, (metric, *others))
        strategies: dict[str, list[Member]] = {}
        for row, settings in models:
            strategies.setdefault(row["strategy"], []).append((row, settings))
        for strategy, members in sorted(strategies.items()):
            decoded = _differences(members, (metric, *others))
            for row, settings in members:
                line = Line(
                    ", ".join([system, *trained.label(settings, "model")]),
                    ", ".join([strategy, *decoded.label(settings, "decoding")]),
                    ", ".join(decoded.label(settings, "evaluation")),
                )
                seeds = table.setdefault(line, {}).setdefault(row.get("steps"), {})
                seed = row["train_seed"], row["seed"]
                if metric_value(row, metric) is not None or seed not in seeds:
                    seeds[seed] = row
    return {line: {steps: list(seeds.values()) for steps, seeds in columns.items()} for line, columns in table.items()}


def _differences(members: Sequence[Member], metrics: Sequence[str]) -> "Differences":
    """The differences of the rows in which one of the metrics has a value, or of all rows if none has."""
    measured = [settings for row, settings in members if any(metric_value(row, name) is not None for name in metrics)]
    return Differences(measured or [settings for _, settings in members])


def setting_column(key: str) -> str:
    """Which label a setting belongs to: ``model``, ``decoding`` or ``evaluation``."""
    first = key.partition(".")[0]
    return "model" if first in MODEL_SETTINGS else first if first == "decoding" else "evaluation"


def group_by_data(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by data set and split, each of which has its own tables; the test split is not named."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        split = "" if row["split"] == "test" else f" ({row['split']})"
        groups.setdefault(f"{row.get('data')}{split}", []).append(row)
    return dict(sorted(groups.items()))


class Differences:
    """The settings in which the members of a group differ.

    Arguments of a component are compared among members in which this component has the same class: if it differs,
    the class is the difference, and arguments that only one of the classes has are not.
    """

    def __init__(self, group: Sequence[Settings]) -> None:
        self.group = group
        self.keys = list(dict.fromkeys(key for settings in group for key in settings))
        self.values = {key: self._values(key) for key in self.keys}
        varied = [key for key in self.keys if any(len(values) > 1 for values in self.values[key].values())]
        self.names = {key: self._short(key) for key in varied if not self._implied(key)}

    def label(self, settings: Settings, column: str) -> list[str]:
        """``name value`` for every difference in a column (see :func:`setting_column`) that applies to ``settings``."""
        return [
            f"{name} {settings.get(key)}"
            for key, name in self.names.items()
            if setting_column(key) == column
            and len(self.values[key].get(parents(settings, key), ())) > 1
            and compares(settings, key)
        ]

    def _values(self, key: str) -> dict[tuple[str, ...], set[str]]:
        """The values of a setting, by the classes of the components it is an argument of."""
        values: dict[tuple[str, ...], set[str]] = {}
        for settings in self.group:
            if compares(settings, key):
                values.setdefault(parents(settings, key), set()).add(str(settings.get(key)))
        return values

    def _implied(self, key: str) -> bool:
        """Whether other settings that labels show determine this one."""
        start = FOLLOWS_FROM.get(key) or (key.removesuffix("signature") if key.endswith(".signature") else None)
        others = [other for other in self.keys if start is not None and other != key and other.startswith(start)]
        return self._count(*others) == self._count(key, *others)

    def _count(self, *keys: str) -> int:
        """The number of different combinations of values."""
        return len({tuple(str(settings.get(key)) for key in keys) for settings in self.group})

    def _short(self, key: str) -> str:
        """The shortest end of a dotted key that no other key has."""
        ends = [key[separator.end() :] for separator in re.finditer(r"[./]", key)]
        others = [f".{other}".replace("/", ".") for other in self.keys if other != key]
        unique = (end for end in reversed(ends) if not any(other.endswith(f".{end}") for other in others))
        return next(unique, key)


def parents(settings: Settings, key: str) -> tuple[str, ...]:
    """The classes of the components around a setting, outermost first."""
    parts = key.split(".")
    return tuple(str(settings.get(".".join(parts[:count]))) for count in range(1, len(parts)))


def compares(settings: Settings, key: str) -> bool:
    """Whether a missing setting counts as None: not for metrics, which are compared among rows that have a value."""
    return key in settings or not key.startswith("metrics.")
