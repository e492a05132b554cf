"""Components that can say how they were built.

Every class below :class:`Described` records the arguments of its constructor, defaults included. Result rows, the
"already evaluated" check and report tables are made from these records, so a new argument cannot be forgotten in them.

    >>> class Router(Described):
    ...     def __init__(self, threshold: float = 0.9) -> None:
    ...         self.cutoff = threshold
    >>> Router(0.5).describe()
    {'class': 'Router', 'threshold': 0.5}
"""

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args

from rdm.hashing import short_hash

RECORD = "_constructor_arguments"


class Described:
    """Base class of everything that is built from the configuration and decides a result."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]

    def describe(self) -> dict[str, Any]:
        """``{"class": ..., argument: value, ...}`` as plain data; components inside are described too."""
        if dataclasses.is_dataclass(self) and RECORD not in vars(
            self
        ):  # their constructor is written after __init_subclass__ has run
            arguments = {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        else:
            arguments = vars(self).get(RECORD, {})
        return {"class": class_name(type(self)), **arguments}


def class_name(kind: type) -> str:
    """The name of a class; with its module if it is not one of this package."""
    own = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"


Component = TypeVar("Component", bound=Described)


def with_argument(component: Component, name: str, value: Any) -> Component:
    """A shallow copy of ``component`` with another value of the constructor argument (and attribute) ``name``.

    >>> class Sampler(Described):
    ...     def __init__(self, steps: int) -> None:
    ...         self.steps = steps
    >>> with_argument(Sampler(4), "steps", 8).describe()
    {'class': 'Sampler', 'steps': 8}
    """
    record = vars(component)[RECORD]
    assert name in record
    changed = copy.copy(component)
    object.__setattr__(changed, name, value)
    object.__setattr__(changed, RECORD, {**record, name: plain(value)})
    return changed


def plain(value: Any) -> Any:
    """``value`` as JSON data: components by :meth:`Described.describe`, other objects by their type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Described):
        return value.describe()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [plain(each) for each in value]
    if isinstance(value, Set):
        return sorted(plain(each) for each in value)
    if isinstance(value, functools.partial):
        positional = {"args": plain(value.args)} if value.args else {}
        return {"class": _name(value.func), **positional, **plain(value.keywords)}
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "tolist"):  # a tensor or array
        return f"{_name(value)} {short_hash(str(value.tolist()))}"
    return str(value) if isinstance(value, Path) or _name(value) == "dtype" else _name(value)


def flatten(description: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``description`` with dotted keys; the key of a component holds its class, the keys below it its arguments.

    >>> flatten({"decoding": {"class": "Sampler", "transition": {"class": "Router", "threshold": 0.5}}})
    {'decoding': 'Sampler', 'decoding.transition': 'Router', 'decoding.transition.threshold': 0.5}
    """
    flat: dict[str, Any] = {}
    for name, value in description.items():
        if isinstance(value, Mapping):
            flat |= {f"{prefix}{name}": value["class"]} if "class" in value else {}
            arguments = {key: each for key, each in value.items() if key != "class"}
            flat |= flatten(arguments, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    """``init``, which first records its arguments, unless the constructor of a subclass has done so."""
    signature = inspect.signature(init)
    # 1 and 1.0 are the same setting.
    floats = {name for name, each in signature.parameters.items() if _takes_float(each.annotation)}
    variadic = {name for name, each in signature.parameters.items() if each.kind is each.VAR_KEYWORD}

    @functools.wraps(init)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> None:
        if RECORD not in vars(self):
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            _, *given = bound.arguments.items()
            record: dict[str, Any] = {}
            for name, value in given:
                value = float(value) if name in floats and type(value) is int else value
                record |= plain(value) if name in variadic else {name: plain(value)}
            # As plain data: a reference to a module would keep it alive, and in every copy of this object.
            object.__setattr__(self, RECORD, record)
        init(self, *args, **kwargs)

    return recorded


def _takes_float(annotation: Any) -> bool:
    """Whether an annotation is ``float``, or a union with ``float`` but not ``int``."""
    options = get_args(annotation) or (annotation,)
    return float in options and int not in options


def _name(value: Any) -> str:
    return getattr(value, "__name__", type(value).__name__)
