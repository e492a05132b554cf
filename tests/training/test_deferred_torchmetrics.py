"""A package of the shape of torchmetrics, whose ``__init__`` is executed when it is needed."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from rdm.training import deferred_torchmetrics as deferred

NAME = "metrics_in_a_test"
FILES = {
    "__init__": "import logging\n_logger = logging.getLogger(__name__)\n"
    "from {name}.__about__ import __version__\nfrom {name} import heavy\n"
    "from {name}.metric import Metric\nfrom {name}.collections import MetricCollection\n"
    "from {name}.heavy import Accuracy\n",
    "__about__": "__version__ = '1.2'\n",
    "utilities": "from {name} import _logger\nfrom {name}.metric import Metric\n",
    "metric": "from {name} import utilities\nclass Metric: ...\n",
    "collections": "class MetricCollection: ...\n",
    "heavy": "from {name}.metric import Metric\nclass Accuracy(Metric): ...\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package that is deferred."""
    folder = tmp_path / NAME
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text.format(name=NAME))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(deferred, "PACKAGE", NAME)
    monkeypatch.setattr(
        sys, "meta_path", [each for each in sys.meta_path if type(each).__module__ != deferred.__name__]
    )
    deferred.defer_torchmetrics()
    deferred.defer_torchmetrics()
    assert sum(isinstance(each, deferred.DeferringFinder) for each in sys.meta_path) == 1
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def is_deferred(module: ModuleType) -> bool:
    return isinstance(module, deferred.DeferredPackage) and f"{NAME}.heavy" not in sys.modules


def test_names_that_lightning_reads_leave_the_rest_out(package: Path) -> None:
    module = import_module(NAME)
    assert module.__version__ == "1.2"
    assert module.Metric is import_module(f"{NAME}.metric").Metric
    assert module.MetricCollection is import_module(f"{NAME}.collections").MetricCollection
    assert not hasattr(module, "__wrapped__")  # asked for by inspect, of every module
    assert is_deferred(module)


def test_another_name_executes_the_package(package: Path) -> None:
    module = import_module(NAME)
    metric = module.Metric
    assert is_deferred(module)
    assert issubclass(module.Accuracy, metric)
    assert module.Metric is metric
    assert type(module) is ModuleType
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


def test_a_submodule_is_the_one_of_the_package(package: Path) -> None:
    module = import_module(NAME)
    heavy = import_module(f"{NAME}.heavy")
    assert issubclass(heavy.Accuracy, module.Metric)
    assert module.Accuracy is heavy.Accuracy


def test_a_package_of_another_shape_is_imported_as_usual(package: Path) -> None:
    (package / "collections.py").unlink()
    text = (package / "__init__.py").read_text().splitlines()
    (package / "__init__.py").write_text("\n".join(line for line in text if "collections" not in line))
    module = import_module(NAME)
    assert type(module) is ModuleType
    assert issubclass(module.Accuracy, module.Metric)
