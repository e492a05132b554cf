"""The numbers of the paper's tables, to be printed beside measured ones, never among them."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rdm.evaluation.results import Row

FILE = Path(__file__).with_name("published.yaml")

# What a row must agree with the paper in, as far as the paper says it; its `iterations` are our `steps`.
SHARED = ("data", "system", "candidates")
DECODINGS = {
    "vanilla": ("vanilla", "vanilla_mbr"),
    "improved": ("rdm", "rdm_gumbel", "rdm_cond", "rdm_commit", "mbr"),
}
# What a metric depends on beside that.
ALSO = {"seconds": ("batch_size",)}
# How the paper trains its systems; a number of an ablation says itself what is other.
TRAINING: dict[str, dict[str, Any]] = {
    "absorbing": {"reweighting": "original", "conditioned": False},
    "multinomial": {"conditioned": False},  # its bound has no weight
    "rdm_absorbing": {"reweighting": "linear", "conditioned": True},
    "rdm_multinomial": {"reweighting": "linear", "conditioned": True},
}


@dataclass(frozen=True)
class Published:
    """One number, with the label of its table and everything the paper says of it."""

    table: str
    metric: str
    value: float
    about: dict[str, Any]

    def fits(self, row: Row, metric: str) -> bool:
        """Whether this is the paper's number for ``metric`` of a result row."""
        about = self.about
        return (
            self.metric == metric
            and row["split"] == "test"
            and about.get("iterations") == row.get("steps")
            and all(about[name] == row.get(name) for name in (*SHARED, *ALSO.get(metric, ())) if name in about)
            and ("decoding" not in about or row["strategy"] in DECODINGS[about["decoding"]])
            and self.same_training(row.get("choices"))
            and self.same_text(row.get("choices"))
        )

    def same_training(self, choices: dict[str, str] | None) -> bool:
        """Whether a model was trained like the paper's; if it does not say how, its own way is assumed."""
        own = TRAINING.get(self.about["system"], {})
        meant = {name: self.about.get(name, value) for name, value in own.items()}
        if choices is None:
            return not {"reweighting", "conditioned"} & self.about.keys()
        given = {**choices, "conditioned": choices.get("diffusion/pairing") == "conditioned"}
        return all(given.get(name) == value for name, value in meant.items())

    def same_text(self, choices: dict[str, str] | None) -> bool:
        """Whether text was split into words like the paper's, on which its tokenised BLEU depends."""
        return self.metric != "tokenized_bleu" or (choices or {}).get("data/tokenizer") in (None, "pretokenized")


@lru_cache(maxsize=1)
def published() -> tuple[Published, ...]:
    """Every number of ``published.yaml``."""
    numbers = []
    tables: Any = OmegaConf.to_container(OmegaConf.load(FILE))
    for table in tables:
        shared = {key: value for key, value in table.items() if key not in ("table", "columns", "rows")}
        for row in table["rows"]:
            for name, value in row["values"].items():
                about = {**shared, **{key: v for key, v in row.items() if key != "values"}, table["columns"]: name}
                numbers.append(Published(table["table"], about.pop("metric"), float(value), about))
    return tuple(numbers)


def published_value(row: Row, metric: str) -> Published | None:
    """The paper's number for ``metric`` of a result row, if it has one."""
    return next((number for number in published() if number.fits(row, metric)), None)
