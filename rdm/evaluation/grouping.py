"""Which result rows share a cell of a table, and how its line is labelled.

Rows of one cell differ in seeds alone. A label names the settings in which the rows of a system and strategy differ:

    rdm, transition Unconditional, gumbel_scale 1.0
    rdm, transition PosteriorStep
"""

import re
from collections.abc import Iterable, Sequence

from rdm.evaluation.results import Row
from rdm.evaluation.settings import Settings, compared_settings, metric_value

Key = tuple[str, str]  # system, label of the decoding
Groups = dict[Key, dict[int | None, list[Row]]]  # then by number of iterations: one row per seed

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
    strategies: dict[Key, list[tuple[Row, Settings]]] = {}
    for row in (row for row in rows if metric in row["metrics"]):
        run = runs.setdefault(row["recipe"], row["run"])
        settings = compared_settings({**row, "run": run}, (metric, *others))
        strategies.setdefault((row["system"], row["strategy"]), []).append((row, settings))
    table: dict[Key, dict[int | None, dict[tuple[int, int], Row]]] = {}
    for (system, strategy), members in sorted(strategies.items()):
        measured = [settings for row, settings in members if metric_value(row, metric) is not None]
        differences = Differences(measured or [members[0][1]])
        for row, settings in members:
            label = ", ".join([strategy, *differences.label(settings)])
            seeds = table.setdefault((system, label), {}).setdefault(row.get("steps"), {})
            seed = row["train_seed"], row["seed"]
            if metric_value(row, metric) is not None or seed not in seeds:
                seeds[seed] = row
    return {key: {steps: list(seeds.values()) for steps, seeds in columns.items()} for key, columns in table.items()}


def group_by_data(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by data set, each of which has its own tables."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row.get("data")), []).append(row)
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

    def label(self, settings: Settings) -> list[str]:
        """``name value`` for every difference that applies to ``settings``."""
        return [
            f"{name} {settings.get(key)}"
            for key, name in self.names.items()
            if len(self.values[key].get(parents(settings, key), ())) > 1 and compares(settings, key)
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
