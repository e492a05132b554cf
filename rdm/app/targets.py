"""Classes that configurations name by ``_target_``.

The command line and the user's own configuration files may name any importable class. Configurations that were read
from elsewhere have been checked by :mod:`rdm.app.trust` before they come here.
"""

import functools
import inspect
import sys
from importlib import import_module
from typing import Any, TypeVar

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from rdm.errors import UserError, require

Kind = TypeVar("Kind")
PACKAGE = "rdm"
KNOWN_TARGETS = {
    "rdm.training.loggers.wandb_logger",  # a function
    "pytorch_lightning.Trainer",
    "pytorch_lightning.callbacks.LearningRateMonitor",
    "pytorch_lightning.callbacks.ModelCheckpoint",
    "pytorch_lightning.callbacks.RichProgressBar",
    "pytorch_lightning.loggers.CSVLogger",
    "pytorch_lightning.loggers.TensorBoardLogger",
}
"""What the configurations of a trained model may name besides the classes of this package."""


def add_working_directory() -> None:
    """Make the working directory importable, after everything that is installed: ``_target_: my_file.MyClass``."""
    if "" not in sys.path:
        sys.path.append("")


def build(node: Any, key: str, kind: type[Kind]) -> Kind:
    """Build the object that ``node`` describes, after checking its values and that it is a ``kind``."""
    from rdm.app.schema import check_types

    check_types(node, key)
    target = get_class_of(node)
    require(target is not None and issubclass(target, kind), f"{key}: this is not a {kind.__name__}")
    try:
        return instantiate(node)
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from error
        raise


def find_target(target: str, key: str) -> Any:
    """The class or function a ``_target_`` names.

    Names below ``rdm`` and ``torch.optim`` must be classes, given by the module that defines them: otherwise
    ``rdm.data.cache.shutil.rmtree`` would count as code of this package.
    """
    found = _import(target, key)
    require(callable(found), f"{key}: {target} is neither a class nor a function")
    if target in KNOWN_TARGETS:
        return found
    if target.startswith(f"{PACKAGE}."):
        own = inspect.isclass(found) and target == f"{found.__module__}.{found.__qualname__}"
        require(own, f"{key}: {target} is not a class of this package")
    if target.startswith("torch.optim."):
        own = inspect.isclass(found) and f"{found.__module__}.".startswith("torch.optim.") and _optimises(found)
        require(own, f"{key}: {target} is neither an optimiser nor a learning-rate schedule of PyTorch")
    return found


def _import(target: str, key: str) -> Any:
    """The object with the dotted name ``target``, possibly an attribute of an attribute of a module."""
    names = target.split(".")
    for size in range(len(names) - 1, 0, -1):
        module = ".".join(names[:size])
        try:
            found = import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{module}.".startswith(f"{error.name}."):
                continue  # the longest part of the name that is a module is sought
            raise UserError(f"{key}: importing {module} failed: {error}") from error
        except Exception as error:
            raise UserError(f"{key}: importing {module} failed: {type(error).__name__}: {error}") from error
        try:
            return functools.reduce(getattr, names[size:], found)
        except AttributeError as error:
            raise UserError(f"{key}: cannot find {target}: {error}") from error
    raise UserError(f"{key}: cannot find {target}: there is no module {names[0]} here or in the Python path")


def _optimises(found: type) -> bool:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    return issubclass(found, Optimizer | LRScheduler)


def get_class_of(node: Any) -> type | None:
    """The class of the object a node describes; None if a function makes it, or if the node has no target."""
    target = node.get("_target_") if isinstance(node, DictConfig) else None
    found = find_target(str(target), "_target_") if target else None
    return found if inspect.isclass(found) else None
