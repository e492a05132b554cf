"""Which code a configuration may name.

To build what a configuration names is to run it, and the configuration of a run may come from somebody else. So a
``_target_`` is a class of this package, an optimiser or learning-rate schedule of PyTorch, or one of :data:`OTHERS`.
"""

import inspect
from typing import Any, TypeVar

from hydra.utils import get_object, instantiate
from omegaconf import DictConfig

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


def build(node: Any, key: str, kind: type[Kind]) -> Kind:
    """Build the object that ``node`` describes, after checking its values and that it is a ``kind``."""
    from rdm.app.schema import check_types

    check_types(node, key)
    target = get_class_of(node)
    require(target is not None and issubclass(target, kind), f"{key}: this is not a {kind.__name__}")
    return instantiate(node)


def find_target(target: str, key: str) -> Any:
    """The class or function a ``_target_`` names; code that may not be named is not even imported."""
    if target in OTHERS:
        return _import(target, key)
    if target.startswith(f"{PACKAGE}."):
        found = _import(target, key)
        # Named where it is defined: "rdm.data.cache.shutil.rmtree" is not a class of this package.
        if inspect.isclass(found) and target == f"{found.__module__}.{found.__qualname__}":
            return found
    if target.startswith("torch.optim."):
        found = _import(target, key)
        if inspect.isclass(found) and f"{found.__module__}.".startswith("torch.optim.") and _optimises(found):
            return found
    raise UserError(f"{key}: {target} is not a class of this package, and a configuration can name no other code")


def _import(target: str, key: str) -> Any:
    try:
        return get_object(target)
    except Exception as error:
        raise UserError(f"{key}: cannot find {target} ({str(error).splitlines()[0]})") from error


def _optimises(found: type) -> bool:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    return issubclass(found, Optimizer | LRScheduler)


def get_class_of(node: Any) -> type | None:
    """The class of the object a node describes; None if a function makes it, or if the node has no target."""
    target = node.get("_target_") if isinstance(node, DictConfig) else None
    found = find_target(str(target), "_target_") if target else None
    return found if inspect.isclass(found) else None
