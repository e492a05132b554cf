"""The configuration of a run without paths of the machine it was trained on."""

import re
from pathlib import PurePosixPath
from typing import Any

from omegaconf import DictConfig, OmegaConf

ABSOLUTE = re.compile(r"(?<![\w./~}-])(?:~|(?=/))(?:/(?!/)[^\s,;:'\"(){}\[\]]*)")
"""An absolute path in a text, or one in the home folder of a user; not the part of a URL after its colon."""
MISSING = "???"
"""What OmegaConf takes for a value that must be given."""
NAMES_KEPT = ("data.train", "data.valid", "data.test", "data.tokenizer", "data.module.train_tokenizer")
"""Keys of files that are looked for below ``data.root``, or not opened when a trained model is used."""
LEFT_OUT = ("ckpt", "init", "resume", "trust")
"""Keys that name other runs or say how this one was started."""


def without_paths(text: str) -> str:
    """Replace every absolute path in a text by its last part.

    >>> without_paths("data.root=/home/me/text data.train=[/x/a.tsv,b/c.tsv] see https://a.org/b")
    'data.root=text data.train=[a.tsv,b/c.tsv] see https://a.org/b'
    """
    return ABSOLUTE.sub(lambda found: PurePosixPath(found[0]).name, text)


def portable_config(config: DictConfig) -> DictConfig:
    """Return the configuration to export: without absolute paths and without references to other runs.

    Files of the data keep their names, to be looked for below ``data.root``. Every other absolute path becomes
    ``???``, a value that has to be given where it is needed. Relative paths stay.

    Args:
        config: the whole configuration, with its interpolations.
    """
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    plain.pop("logger", None)
    if "choices" in plain:
        plain["choices"] = {key: without_paths(v) if isinstance(v, str) else v for key, v in plain["choices"].items()}
    fixed = {"run_dir": ".", **{key: None for key in LEFT_OUT if key in plain}}
    data = plain["data"]
    if is_absolute(data.get("cache")):
        data["cache"] = "data/cache"  # needed only to reuse what was encoded before
    return OmegaConf.create({**_replaced(plain, ""), **fixed})


def missing_paths(data: DictConfig) -> list[str]:
    """Return the keys of the data section whose value was a path of another machine and has to be given."""
    plain = OmegaConf.to_container(data, resolve=False)
    return [f"data.{key}" for key, value in _leaves(plain, "") if value == MISSING]


def is_absolute(value: Any) -> bool:
    """Whether a value is an absolute path, or one in the home folder of a user."""
    return isinstance(value, str) and value.startswith(("/", "~/"))


def _replaced(node: Any, key: str) -> Any:
    if isinstance(node, dict):
        return {name: _replaced(value, f"{key}.{name}".lstrip(".")) for name, value in node.items()}
    if isinstance(node, list):
        return [_replaced(value, key) for value in node]
    if not is_absolute(node):
        return node
    return PurePosixPath(node).name if key.startswith(NAMES_KEPT) else MISSING


def _leaves(node: Any, key: str) -> list[tuple[str, Any]]:
    if isinstance(node, dict):
        return [leaf for name, value in node.items() for leaf in _leaves(value, f"{key}.{name}".lstrip("."))]
    return [(key, node)]
