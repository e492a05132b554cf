"""What a model can do on the page: the decodings that fit it, their settings, and whether it fills blanks."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, TypeGuard

from omegaconf import DictConfig, OmegaConf

from rdm.app.choices import CONF, choices
from rdm.app.decodings import decoding_config
from rdm.app.model import Model
from rdm.decoding.base import Decoding
from rdm.describe import with_argument
from rdm.errors import UserError, require

AS_TRAINED = "as_trained"
"""The choice of ``conf/decoding`` that is offered first."""
ATTEMPTS: tuple[dict[str, Any], ...] = ({}, {"length_candidates": 1})
"""Settings with which a decoding is tried: a model without length head takes one length only."""


@dataclass(frozen=True)
class Setting:
    """A number that can be set: its key below ``decoding``, its name on the page, default, range and step."""

    key: str
    label: str
    value: float
    minimum: float
    maximum: float
    step: float

    @property
    def whole(self) -> bool:
        return self.step == 1

    def check(self, value: Any) -> None:
        """Raise a :class:`UserError` unless ``value`` can be set."""
        kinds = int if self.whole else int | float
        number = isinstance(value, kinds) and not isinstance(value, bool)
        require(number, f"{self.label}: {'an integer' if self.whole else 'a number'} is needed")
        within = self.minimum <= value <= self.maximum
        require(within, f"{self.label} must lie between {self.minimum:g} and {self.maximum:g}, got {value:g}")


KNOWN = (
    Setting("steps", "iterations", 0, 1, 2000, 1),
    Setting("temperature", "temperature", 0, 0, 10, 0.1),
    Setting("top_p", "top-p", 0, 0.01, 1, 0.01),
    Setting("length_candidates", "lengths", 0, 1, 100, 1),
    Setting("samples", "candidates", 0, 1, 100, 1),
    Setting("beam_size", "beam width", 0, 1, 100, 1),
    Setting("length_penalty", "length penalty", 0, -10, 10, 0.1),
    Setting("max_tokens", "tokens", 0, 1, 4096, 1),
    Setting("eta", "eta", 0, 0, 1, 0.1),
)
"""Arguments of decodings that are offered, with ranges that keep a request from blocking the others for long."""


@dataclass(frozen=True)
class Strategy:
    """A decoding that fits a model.

    Attributes:
        name: a choice of ``conf/decoding``.
        label: its name on the page.
        about: what its file says about it.
        settings: what can be set.
        options: settings without which the model would refuse it.
    """

    name: str
    label: str
    about: str
    settings: list[Setting]
    options: dict[str, Any]


@dataclass(frozen=True)
class Offer:
    """A model under a name that is unique on the page, and what it can do."""

    name: str
    model: Model
    strategies: list[Strategy]
    fills: bool

    @property
    def reads(self) -> str:
        """What a text is to the model."""
        return "prompt" if self.model.system.open_ended else "source"

    def plain(self) -> dict[str, Any]:
        """The offer as JSON data."""
        strategies = [asdict(strategy) for strategy in self.strategies]
        label = f"{self.name} ({self.model.label})"
        return {"name": self.name, "label": label, "reads": self.reads, "fills": self.fills, "strategies": strategies}


def make_offer(name: str, model: Model) -> Offer:
    """Try every choice of ``conf/decoding`` on a model, and whether it fills a blank."""
    model.decoding(composed(AS_TRAINED))  # raises if the run itself cannot be used
    names = sorted(choices("decoding"), key=lambda each: each != AS_TRAINED)
    strategies = [strategy for each in names for strategy in fitting(model, each)]
    return Offer(name, model, strategies, can_fill(model, strategies[0]))


def fitting(model: Model, name: str) -> Iterator[Strategy]:
    """The choice ``name`` with the first of the attempts that the model accepts; nothing if it accepts none."""
    for options in ATTEMPTS:
        config = composed(name).copy()
        for key, value in options.items():
            OmegaConf.update(config, key, value, force_add=True)
        try:
            decoding = model.decoding(config)
        except UserError:
            continue
        label = name if name == decoding.name else f"{name} ({decoding.name})"
        yield Strategy(name, label, comment(name), list(settings_of(model, decoding)), options)
        return


@cache
def composed(name: str) -> DictConfig:
    """The configuration of a choice; composing takes a tenth of a second."""
    return decoding_config(name, {})


def comment(name: str) -> str:
    """The first sentence of the comment at the beginning of a choice's file."""
    lines = (CONF / "decoding" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    first = next((index for index, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return re.split(r"(?<=\.)\s", " ".join(line.removeprefix("#").strip() for line in lines[:first]))[0]


def settings_of(model: Model, decoding: Decoding) -> Iterator[Setting]:
    """The numbers among the arguments of a decoding, with the largest values that the model accepts."""
    arguments = decoding.describe()
    for known in KNOWN:
        value = arguments.get(known.key)
        if is_number(value):
            largest = largest_accepted(model, decoding, known, value) if known.whole else known.maximum
            if largest > known.minimum:
                yield Setting(known.key, known.label, value, known.minimum, largest, known.step)
    for key, value in arguments.get("transition", {}).items():
        if is_number(value):
            yield Setting(f"transition.{key}", key.replace("_", " "), value, 0, 1000, 0.01)


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def largest_accepted(model: Model, decoding: Decoding, setting: Setting, accepted: float) -> float:
    """The largest value up to ``setting.maximum`` that the model accepts, found by bisection."""
    low, high = int(accepted), int(setting.maximum)
    while low < high:
        middle = (low + high + 1) // 2
        try:
            model.system.check(with_argument(decoding, setting.key, middle))
            low = middle
        except UserError:
            high = middle - 1
    return low


def can_fill(model: Model, strategy: Strategy) -> bool:
    """Whether the model fills a text of one blank."""
    source = None if model.system.open_ended else "a"
    try:
        model.fill("_", source, strategy.name, **strategy.options)
    except UserError:
        return False
    return True
