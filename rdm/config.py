"""Configuration: values are checked against the signatures of what they are handed to.

Every ``_target_`` names a class or function whose annotations already say what it takes; they are the schema. A
wrong value is reported under the key a user would type, before anything is built.

To build what a configuration names is to run it, and the configuration of a run may be somebody else's. So a
``_target_`` can only be a class of this package, one of :data:`OTHERS`, or an optimiser or scheduler of torch.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rdm.errors import UserError, require

Kind = TypeVar("Kind")
PACKAGE = "rdm"
OTHERS = {
    "rdm.training.loggers.wandb_logger",  # a function
    "pytorch_lightning.Trainer",
    "pytorch_lightning.callbacks.LearningRateMonitor",
    "pytorch_lightning.callbacks.ModelCheckpoint",
    "pytorch_lightning.callbacks.RichProgressBar",
    "pytorch_lightning.loggers.CSVLogger",
    "pytorch_lightning.loggers.TensorBoardLogger",
}
"""What a configuration may name beside the classes of this package."""
HOW = {"_target_", "_convert_", "_partial_", "_recursive_"}
"""Keys that say how to build, and are not handed on."""
Text = str | int | float | bool
"""A word on the command line, whatever Hydra takes it for."""
PLAIN = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", NoneType: "null"}


def build(node: Any, where: str, kind: type[Kind]) -> Kind:
    """The object that ``node`` describes, of right values, checked to be a ``kind``."""
    check_types(node, where)
    made = get_class_of(node)
    require(made is not None and issubclass(made, kind), f"{where}: this is not a {kind.__name__}")
    return instantiate(node)


def check_types(node: Any, path: str = "") -> None:
    """Raise a :class:`UserError` for the first value below ``node`` that its ``_target_`` cannot take."""
    if isinstance(node, ListConfig):
        for index in range(len(node)):
            check_types(node[index], f"{path}[{index}]")
    if not isinstance(node, DictConfig) or node._is_none() or node._is_missing():
        return
    hints = _hints(str(node["_target_"]), f"{path}._target_") if "_target_" in node else None
    for key in map(str, node):
        where = f"{path}.{key}" if path else key
        if key in HOW:
            continue
        require(key != "_args_", f"{where}: values are given by name")
        if OmegaConf.is_missing(node, key):
            raise UserError(f"{where}: a value is needed")
        try:
            value = node[key]
        except InterpolationToMissingValueError as error:
            raise UserError(f"{_typed_at(node, key, where)}: a value is needed") from error
        if hints is not None and key not in hints:
            raise UserError(f"{where}: {node['_target_']} takes no such value; it takes {', '.join(hints)}")
        check_types(value, where)  # first what is inside: its class is looked at below
        if hints is not None:
            _check_value(value, hints[key], _typed_at(node, key, where))


class Options:
    """Values that belong to no group, in every script."""

    seed: int
    ckpt: str | None
    debug: bool


class TrainOptions(Options):
    """Those of ``conf/train.yaml``."""

    resume: Literal["auto"] | None
    compile: bool


class GenerateOptions(Options):
    """Those of ``conf/generate.yaml``."""

    average: int
    device: str
    int8: bool
    text: Text | None
    sentences: int
    template: Text | None
    trace: bool
    page: str | None


class EvaluateOptions(Options):
    """Those of ``conf/evaluate.yaml``."""

    average: int
    device: str
    int8: bool
    split: Literal["train", "valid", "test"]
    limit: int | None
    batch_size: int
    likelihood: int | Literal["all"] | None
    results: str | None
    redo: bool


def check_options(config: DictConfig, options: type[Options]) -> None:
    """Check the values of ``config`` that ``options`` annotates."""
    for key, hint in get_type_hints(options).items():
        _check_value(config[key], hint, key)
    require(0 <= config.seed < 2**32, f"seed must lie between 0 and {2**32 - 1}, got {config.seed}")


def chosen() -> dict[str, str]:
    """The word chosen for each config group, by hand or by another choice; groups left open are not among them."""
    choices = HydraConfig.get().runtime.choices.items()
    return {group: word for group, word in choices if word is not None and not group.startswith("hydra/")}


def _check_value(value: Any, hint: Any, where: str) -> None:
    if not _fits(value, hint):
        made = get_class_of(value)
        shown = made.__name__ if made else repr(value)
        raise UserError(f"{where}: {shown} is not {' or '.join(dict.fromkeys(_describe(hint)))}")


def _hints(target: str, where: str) -> dict[str, Any] | None:
    """Parameter types of a target by name, or None if it takes anything."""
    function = find(target, where)
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    known = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    return {name: known.get(name, Any) for name in parameters}


def find(target: str, where: str) -> Any:
    """What a ``_target_`` names: a class of this package, of ``OTHERS``, or an optimiser or scheduler of torch.

    Nothing else is imported or looked at.
    """
    allowed = target in OTHERS
    if allowed or target.startswith(f"{PACKAGE}."):
        found = _look_up(target, where)
        # Named where it is defined: "rdm.runs.subprocess.run" is not of this package.
        if allowed or (inspect.isclass(found) and target == f"{found.__module__}.{found.__qualname__}"):
            return found
    if target.startswith("torch.optim."):
        found = _look_up(target, where)
        kinds = (Optimizer, LRScheduler)
        if inspect.isclass(found) and issubclass(found, kinds) and f"{found.__module__}.".startswith("torch.optim."):
            return found
    raise UserError(f"{where}: {target} is not a class of this package, and a configuration can name no other code")


def _look_up(target: str, where: str) -> Any:
    try:
        return get_object(target)
    except Exception as error:
        raise UserError(f"{where}: cannot find {target} ({str(error).splitlines()[0]})") from error


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
    # An object is built from a node of its own; what is not understood here is left to the target.
    return not inspect.isclass(hint) or (isinstance(value, DictConfig | ListConfig) and _may_be(value, hint))


def _may_be(node: DictConfig | ListConfig, kind: type) -> bool:
    """Whether what ``node`` describes can be a ``kind``: an encoder-decoder is no decoder-only model."""
    made = get_class_of(node)
    return made is None or getattr(kind, "_is_protocol", False) or issubclass(made, kind)


def get_class_of(node: Any) -> type | None:
    """The class of the object a node describes; None if it is made by a function, or by nothing."""
    target = node.get("_target_") if isinstance(node, DictConfig) else None
    made = find(str(target), "_target_") if target else None
    return made if inspect.isclass(made) else None


def _describe(hint: Any) -> Iterator[str]:
    if get_origin(hint) in (Union, UnionType):
        for argument in get_args(hint):
            yield from _describe(argument)
    elif get_origin(hint) is Literal:
        yield f"one of {', '.join(map(str, get_args(hint)))}"
    else:
        yield PLAIN.get(hint) or f"a {getattr(hint, '__name__', hint)}"


def _typed_at(node: DictConfig, key: Any, where: str) -> str:
    """The key a user sets: where an interpolation points, if the value is one."""
    raw = OmegaConf.to_container(node, resolve=False)[key]  # type: ignore[index]
    pointer = re.fullmatch(r"\$\{([\w.]+)\}", raw) if isinstance(raw, str) else None
    return pointer.group(1) if pointer else where
