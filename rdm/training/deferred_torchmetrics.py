"""Importing Lightning without all of torchmetrics.

Lightning needs two classes of torchmetrics. The ``__init__`` of that package imports every metric, and with them scipy
and transformers, which takes longer than importing Lightning itself.
"""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PACKAGE = "torchmetrics"
MODULES = ("utilities", "metric", "collections", "__about__")
"""Modules of the package that Lightning needs, in an order in which they can be imported."""
NAMES = {"Metric": "metric", "MetricCollection": "collections", "__version__": "__about__"}
"""Names that Lightning reads from the package, with the modules that define them."""


class DeferredPackage(ModuleType):
    """A package whose ``__init__`` is executed when a name is used that it has not got yet.

    Submodules are imported as usual, so classes and functions are the same whichever way they are reached.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert isinstance(self.__loader__, DeferringLoader)
        self.__loader__.original.exec_module(self)
        return getattr(self, name)


class DeferringLoader(Loader):
    """Imports what Lightning needs of the package; all of it if another version is built differently.

    Args:
        original: the loader of the package.
    """

    def __init__(self, original: Loader) -> None:
        self.original = original

    def exec_module(self, module: ModuleType) -> None:
        try:
            module._logger = logging.getLogger(PACKAGE)  # type: ignore[attr-defined]  # read by torchmetrics.utilities
            imported = {name: import_module(f"{PACKAGE}.{name}") for name in MODULES}
            for name, defined_in in NAMES.items():
                setattr(module, name, getattr(imported[defined_in], name))
            module.__class__ = DeferredPackage
        except (ImportError, AttributeError):
            for name in [name for name in sys.modules if name.startswith(f"{PACKAGE}.")]:
                del sys.modules[name]
            self.original.exec_module(module)


class DeferringFinder(MetaPathFinder):
    """Finds the package as Python does, with another loader."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == PACKAGE else None
        if spec is not None and spec.loader is not None:
            spec.loader = DeferringLoader(spec.loader)
        return spec


def defer_torchmetrics() -> None:
    """Let a later import of Lightning leave out what it does not need of torchmetrics."""
    if not any(isinstance(finder, DeferringFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, DeferringFinder())
