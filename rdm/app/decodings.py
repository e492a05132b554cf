"""Decodings and metrics by the names of their configuration files, for the Python API."""

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from rdm.app.choices import CONF, choices, did_you_mean
from rdm.app.composition import compose_config
from rdm.errors import UserError, require

GROUPS = ("decoding", "schedule", "selection", "ranking")
"""Config groups of which a name chooses a file."""
_composing = Lock()  # Hydra has one global state


def decoding_config(name: str | None, options: Mapping[str, Any]) -> DictConfig:
    """The decoding section that ``decoding=name`` and further options give on the command line.

    Args:
        name: a file of ``conf/decoding``; None keeps the decoding the model was trained with.
        options: values below ``decoding`` by name; ``schedule``, ``selection``, ``ranking`` name files of their groups.
    """
    chosen = {"decoding": name} | {group: options[group] for group in GROUPS if group in options}
    overrides = []
    for group, choice in chosen.items():
        if choice is None:
            continue
        require(isinstance(choice, str), f"{group}: give a name, or a whole decoding as an object, not {choice!r}")
        known = choices(group)
        message = f"{group}={choice}: there is no such {group}{did_you_mean(choice, known)}"
        require(choice in known, f"{message}; there are {', '.join(known)}")
        overrides.append(f"{group}={choice}")
    with _composing:
        section = compose_config("generate", overrides).decoding
    for key, value in options.items():
        if key not in GROUPS:
            OmegaConf.update(section, key, value, force_add=True)
    return section


def metric_configs(names: Iterable[str]) -> dict[str, DictConfig]:
    """The configurations of metrics by name, from all files of ``conf/metrics``."""
    known: dict[str, Any] = {}
    for name in choices("metrics"):
        nodes = yaml.safe_load((CONF / "metrics" / f"{name}.yaml").read_text(encoding="utf-8"))
        known = {key: node for key, node in nodes.items() if isinstance(node, dict)} | known
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UserError(f"metrics: there is no metric {name}{hint}; there are {', '.join(sorted(known))}")
    return {name: OmegaConf.create(known[name]) for name in names}
