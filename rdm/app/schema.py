"""Checks the values of a configuration against the signatures of the classes they are passed to.

Every ``_target_`` names a class or function whose annotations say what it takes: they are the schema. A wrong value is
reported under the key a user would type, before anything is built.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError

from rdm.app.targets import PACKAGE, find_target, get_class_of
from rdm.errors import UserError, require

INSTANTIATION_KEYS = {"_target_", "_convert_", "_partial_", "_recursive_"}
"""Keys that direct Hydra's ``instantiate`` and are not passed on."""
PLAIN = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", NoneType: "null"}


def check_types(node: Any, path: str = "") -> None:
    """Raise a :class:`UserError` for the first value below ``node`` that its ``_target_`` cannot take."""
    if isinstance(node, ListConfig):
        for index in range(len(node)):
            check_types(node[index], f"{path}[{index}]")
    if not isinstance(node, DictConfig) or node._is_none() or node._is_missing():
        return
    hints = _parameter_types(str(node["_target_"]), f"{path}._target_") if "_target_" in node else None
    for key in map(str, node):
        full_key = f"{path}.{key}" if path else key
        if key in INSTANTIATION_KEYS:
            continue
        require(key != "_args_", f"{full_key}: values are given by name")
        if OmegaConf.is_missing(node, key):
            raise UserError(f"{full_key}: a value is needed")
        try:
            value = node[key]
        except InterpolationToMissingValueError as error:
            raise UserError(f"{_typed_key(node, key, full_key)}: a value is needed") from error
        if hints is not None and key not in hints:
            raise UserError(f"{full_key}: {node['_target_']} takes no such value; it takes {', '.join(hints)}")
        if isinstance(value, DictConfig | ListConfig):  # the inside of the node first; its class is checked below
            check_types(value, _typed_key(node, key, full_key))
        if hints is not None:
            check_value(value, hints[key], _typed_key(node, key, full_key))


def check_value(value: Any, hint: Any, key: str) -> None:
    """Raise a :class:`UserError` if ``value`` does not fit the annotation ``hint``."""
    if not _fits(value, hint):
        target = get_class_of(value)
        shown = target.__name__ if target else repr(value)
        raise UserError(f"{key}: {shown} is not {' or '.join(dict.fromkeys(_describe(hint)))}")


def _parameter_types(target: str, key: str) -> dict[str, Any] | None:
    """Parameter types of a target by name, or None if it takes any keyword.

    A constructor of this package with ``**kwargs`` passes them on to that of its base class.
    """
    found = find_target(target, key)
    functions = [found]
    if inspect.isclass(found):
        functions = [vars(base)["__init__"] for base in found.__mro__[:-1] if "__init__" in vars(base)]
    types: dict[str, Any] = {}
    for function in functions:
        parameters, known = inspect.signature(function).parameters, _annotations(function)
        variadic = {name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD}
        types = {name: known.get(name, Any) for name in parameters if name not in {"self", *variadic}} | types
        if not variadic:
            break
        if not function.__module__.startswith(f"{PACKAGE}."):
            return None
    return types


def _annotations(function: Any) -> dict[str, Any]:
    """The annotations of a function; none if they name something that only a type checker imports."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if hint is Any:
        return True
    if origin is Literal:
        return value in arguments
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    if hint in PLAIN:
        return isinstance(value, hint)
    if inspect.isclass(origin or hint) and issubclass(origin or hint, Mapping):
        return isinstance(value, DictConfig)
    if inspect.isclass(origin or hint) and issubclass(origin or hint, Sequence):
        return isinstance(value, ListConfig)
    # An object is built from a node; an annotation that is not understood here is left to the target.
    return not inspect.isclass(hint) or (isinstance(value, DictConfig | ListConfig) and _may_be(value, hint))


def _may_be(node: DictConfig | ListConfig, kind: type) -> bool:
    """Whether the object that ``node`` describes can be a ``kind``: a Llama is not an encoder-decoder."""
    target = get_class_of(node)
    return target is None or getattr(kind, "_is_protocol", False) or issubclass(target, kind)


def _describe(hint: Any) -> Iterator[str]:
    if get_origin(hint) in (Union, UnionType):
        for argument in get_args(hint):
            yield from _describe(argument)
    elif get_origin(hint) is Literal:
        yield f"one of {', '.join(map(str, get_args(hint)))}"
    else:
        yield PLAIN.get(hint) or f"a {getattr(hint, '__name__', hint)}"


def _typed_key(node: DictConfig, key: Any, full_key: str) -> str:
    """The key a user sets: where an interpolation points, if the value is one."""
    raw = OmegaConf.to_container(node, resolve=False)[key]  # type: ignore[index]
    pointer = re.fullmatch(r"\$\{([\w.]+)\}", raw) if isinstance(raw, str) else None
    return pointer.group(1) if pointer else full_key
