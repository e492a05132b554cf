"""Keys of a training configuration that are never read: setting one would have no effect.

A key is read if it lies below one of :data:`ROOTS`, which the code of ``rdm.app`` reads, or if a value that is read
refers to it by interpolation. Keys below a ``_target_`` are also checked against its signature (:mod:`rdm.app.schema`).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

ROOTS = (
    "callbacks",
    "data.metrics",  # by evaluate.py, from the configuration of the run
    "data.module",
    "data.name",
    "decoding",
    "diffusion.name",  # by check_task
    "diffusion.vanilla",  # by decoding=vanilla in evaluate.py
    "job_type",
    "logger",
    "name",
    "optimizer",
    "run_dir",
    "system",
    "trainer",
    "vocab",
)
"""Keys read by the code of the scripts, besides the options of :mod:`rdm.app.checks`."""
INTERPOLATION = re.compile(r"\$\{([^${}]+)\}")
KEY = re.compile(r"\w+(?:\.\w+)*")


def unused_keys(config: DictConfig, roots: Iterable[str]) -> list[str]:
    """The keys of ``config`` that are neither below ``roots`` nor referred to by a value that is read.

    >>> unused_keys(OmegaConf.create({"a": "${b.c}", "b": {"c": 1, "d": 2}}), ["a"])
    ['b.d']
    """
    values = dict(leaves(OmegaConf.to_container(config, resolve=False)))
    unread, pending = set(values), list(roots)
    while pending:
        root = pending.pop()
        # Below the key, or above it: an interpolation may refer to a node that contains the key.
        read = {key for key in unread if below(key, [root]) or below(root, [key])}
        unread -= read
        pending += [reference for key in read for reference in references(values[key])]
    return [key for key in values if key in unread]


def below(key: str, roots: Iterable[str]) -> bool:
    """Whether ``key`` is one of ``roots`` or lies below one."""
    return any(f"{key}.".startswith(f"{root}.") for root in roots)


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values below ``node`` that are no mapping, and empty mappings, with their keys; lists are one value."""
    if not isinstance(node, dict) or not node:
        yield path, node
        return
    for key, value in node.items():
        yield from leaves(value, f"{path}.{key}" if path else str(key))


def references(value: Any) -> Iterator[str]:
    """The keys that the interpolations in a value, or in the items of a list, may refer to."""
    if isinstance(value, str):
        for interpolation in INTERPOLATION.findall(value):
            yield from KEY.findall(interpolation)
    elif isinstance(value, list):
        for item in value:
            yield from (key for _, leaf in leaves(item) for key in references(leaf))
