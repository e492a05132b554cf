"""The data of a trained run with overrides: other files, another split, or another data set."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rdm.errors import require

UNUSED = ("train_tokenizer", "max_length")
"""Arguments of a data module that have no effect with the codec of a trained model."""
USED_OF_LOADING = ("cache",)
"""Arguments of the loading that have an effect when no model is trained."""
PROBE = "a value that occurs nowhere else"


def with_data(trained: DictConfig, overrides: DictConfig, typed: Iterable[str]) -> DictConfig:
    """The configuration of a run with other data.

    Interpolations of the run's configuration are resolved with the new values, so ``data.root`` changes whatever
    refers to it.

    Args:
        trained: configuration of the run.
        overrides: keys of the run's data section with new values, or the whole section of another data set.
        typed: dotted keys below ``data`` that the user gave; one that evaluation does not use is refused.
    """
    config = deepcopy(trained)
    given = OmegaConf.to_container(overrides, resolve=False)
    section = OmegaConf.to_container(trained.data, resolve=False)
    assert isinstance(given, dict)
    assert isinstance(section, dict)
    whole = "module" in given and "_target_" in given["module"] and "name" in given
    if not whole:
        check_keys(given, section)
    config.data = given if whole else merged(section, given)
    for key in typed:
        check_effect(config, key)
    return config


def merged(trained: dict[Any, Any], given: dict[Any, Any]) -> dict[Any, Any]:
    """``trained`` with the values of ``given``; a component of another class replaces the trained one as a whole."""
    result = dict(trained)
    for key, value in given.items():
        before = trained.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            same_class = value.get("_target_", before.get("_target_")) == before.get("_target_")
            value = merged(before, value) if same_class else value
        result[key] = value
    return result


def check_keys(given: Mapping[Any, Any], known: Mapping[Any, Any], path: str = "data") -> None:
    """Refuse a key that the data section of the run does not have."""
    for key, value in given.items():
        names = ", ".join(name for name in map(str, known) if not name.startswith("_")) or "none"
        require(key in known, f"{path}.{key}: the data of this run has no such key; it has {names}")
        if isinstance(value, Mapping) and "_target_" not in value and isinstance(known[key], Mapping):
            check_keys(value, known[key], f"{path}.{key}")


def check_effect(config: DictConfig, key: str) -> None:
    """Refuse a key of the data section whose value does not reach anything that evaluation uses."""
    probed = deepcopy(config)
    OmegaConf.update(probed, f"data.{key}", PROBE, force_add=True)
    try:
        module = OmegaConf.to_container(probed.data.module, resolve=True)
        metrics = OmegaConf.to_container(probed.data.metrics, resolve=True)
    except OmegaConfBaseException:
        return  # a value is missing, which is reported when the data are built
    assert isinstance(module, dict)
    loading = {name: module["loading"].get(name) for name in USED_OF_LOADING}
    used = {name: value for name, value in module.items() if name not in UNUSED} | {"loading": loading}
    effective = PROBE in repr((used, metrics))
    # Runs of older versions were saved without the interpolations that refer to keys such as data.root.
    in_corpus = key in probed.data.get("corpus", {})
    suggestion = f"; did you mean data.corpus.{key}?" if in_corpus else ": it is used in training only"
    require(effective, f"data.{key} has no effect on a trained model{suggestion}")
