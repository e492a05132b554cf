"""Composing configurations: their location, and the resolvers and schemas to register first."""

from collections.abc import Sequence

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from rdm.app.choices import CONF
from rdm.app.sweeps import job_folder


def register() -> None:
    """Register what the files of ``conf`` need: the resolver ``job_folder``, ``decoding/_open`` and ``data/_open``.

    ``_open`` is an empty mapping to which overrides such as ``decoding.steps=4`` may add keys without ``+``. Hydra
    makes the composed configuration a struct, which refuses new keys; the flag of this node takes precedence below it.
    A YAML file cannot set flags.
    """
    OmegaConf.register_new_resolver("job_folder", job_folder, replace=True)
    for group in ("decoding", "data"):
        ConfigStore.instance().store(group=group, name="_open", node=DictConfig({}, flags={"struct": False}))


def compose_config(name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose ``conf/<name>.yaml`` with ``overrides``, for modules that are not run by Hydra."""
    register()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose(name, list(overrides))
