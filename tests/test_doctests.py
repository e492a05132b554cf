"""The examples in the docstrings of the public packages run and print what they show."""

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import rdm.decoding
import rdm.describe
import rdm.diffusion
import rdm.models


def modules(package: ModuleType) -> list[str]:
    """Names of a package, or of a single module, and of everything below it."""
    path = getattr(package, "__path__", [])
    return [package.__name__, *(module.name for module in pkgutil.walk_packages(path, f"{package.__name__}."))]


PACKAGES = (rdm.decoding, rdm.describe, rdm.diffusion, rdm.models)


@pytest.mark.parametrize("name", [name for package in PACKAGES for name in modules(package)])
def test_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
