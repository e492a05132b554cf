"""The paper's numbers (``published.yaml``), which tables show in columns of their own beside measured ones."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from rdm.evaluation.results import Row

FILE = Path(__file__).with_name("published.yaml")

MATCHED = ("data", "system", "candidates")
"""Keys in which a row must agree with the paper, if the paper gives them; its `iterations` are our `steps`."""
MATCHED_FOR = {"seconds": ("batch_size",)}
"""Further keys that must agree for a metric."""
DECODINGS = {
    "vanilla": ("vanilla", "vanilla_mbr"),
    "improved": ("rdm", "rdm_gumbel", "rdm_cond", "rdm_commit", "mbr"),
}
ADAPTIVE = ("levenshtein", "easy_first")
"""Decodings that end by themselves: the paper prints "Adaptive", our `steps` are the largest number of iterations."""
TRAINING: dict[str, dict[str, Any]] = {
    "absorbing": {"reweighting": "original", "conditioned": False},
    "multinomial": {"conditioned": False},  # its bound has no weight
    "rdm_absorbing": {"reweighting": "linear", "conditioned": True},
    "rdm_multinomial": {"reweighting": "linear", "conditioned": True},
}
"""How the paper trains its systems; numbers of an ablation say what differs."""


@dataclass(frozen=True)
class Published:
    """One number of the paper.

    Args:
        table: LaTeX label of its table.
        conditions: everything the paper states about the number: data, system, iterations, ...
    """

    table: str
    metric: str
    value: float
    conditions: dict[str, Any]

    def matches(self, row: Row, metric: str) -> bool:
        """Whether this is the paper's number for ``metric`` of a result row."""
        conditions = self.conditions
        keys = [name for name in (*MATCHED, *MATCHED_FOR.get(metric, ())) if name in conditions]
        return (
            self.metric == metric
            and row["split"] == "test"
            and self.same_iterations(row)
            and all(conditions[name] == row.get(name) for name in keys)
            and ("decoding" not in conditions or row["strategy"] in DECODINGS[conditions["decoding"]])
            and self.same_training(row.get("choices"))
            and self.same_text(row.get("choices"))
        )

    def same_iterations(self, row: Row) -> bool:
        """Whether a text was decoded in as many iterations."""
        iterations = self.conditions.get("iterations")
        return iterations == row.get("steps") or (iterations is None and row["strategy"] in ADAPTIVE)

    def same_training(self, choices: dict[str, str] | None) -> bool:
        """Whether a model was trained like the paper's.

        Without ``choices`` the training of the paper's main results is assumed.
        """
        default = TRAINING.get(self.conditions["system"], {})
        expected = {name: self.conditions.get(name, value) for name, value in default.items()}
        if choices is None:
            return not {"reweighting", "conditioned"} & self.conditions.keys()
        actual = {**choices, "conditioned": choices.get("diffusion/pairing") == "conditioned"}
        return all(actual.get(name) == value for name, value in expected.items())

    def same_text(self, choices: dict[str, str] | None) -> bool:
        """Whether text was split into words as in the paper, on which its tokenised BLEU depends."""
        return self.metric != "tokenized_bleu" or (choices or {}).get("data/tokenizer") in (None, "pretokenized")


@lru_cache(maxsize=1)
def published() -> tuple[Published, ...]:
    """All numbers of ``published.yaml``."""
    numbers = []
    for table in yaml.safe_load(FILE.read_text(encoding="utf-8")):
        shared = {key: value for key, value in table.items() if key not in ("table", "columns", "rows")}
        for row in table["rows"]:
            own = {key: value for key, value in row.items() if key != "values"}
            for name, value in row["values"].items():
                conditions = {**shared, **own, table["columns"]: name}
                numbers.append(Published(table["table"], conditions.pop("metric"), float(value), conditions))
    return tuple(numbers)


def published_value(row: Row, metric: str) -> Published | None:
    """The paper's number for ``metric`` of a result row, or None."""
    return next((number for number in published() if number.matches(row, metric)), None)
