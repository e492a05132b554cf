"""Reparameterized discrete diffusion models for text generation.

    >>> import rdm
    >>> model = rdm.load("outputs/demo")  # doctest: +SKIP
    >>> model.generate(["ein Satz"], decoding="rdm", steps=10)  # doctest: +SKIP

Importing the package imports neither torch nor Lightning; they are imported when something is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rdm.app.model import Evaluation, Model
    from rdm.app.open_model import load
    from rdm.errors import UserError
    from rdm.evaluation.generation import Generated, ScoredText, SentenceScore

__version__ = "0.2.0"
__all__ = ["Evaluation", "Generated", "Model", "ScoredText", "SentenceScore", "UserError", "load"]

_LOCATIONS = {
    "Evaluation": "rdm.app.model",
    "Generated": "rdm.evaluation.generation",
    "Model": "rdm.app.model",
    "ScoredText": "rdm.evaluation.generation",
    "SentenceScore": "rdm.evaluation.generation",
    "UserError": "rdm.errors",
    "load": "rdm.app.open_model",
}
_PACKAGES = ("data", "decoding", "diffusion", "evaluation", "models", "systems", "training")


def __getattr__(name: str) -> Any:
    """Import what is used for the first time."""
    if name in _LOCATIONS:
        value = getattr(import_module(_LOCATIONS[name]), name)
    elif name in _PACKAGES:
        value = import_module(f"rdm.{name}")
    else:
        raise AttributeError(f"module 'rdm' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LOCATIONS, *_PACKAGES])
