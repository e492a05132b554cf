"""The config ``decoding/_open``, on which ``conf/decoding/as_trained.yaml`` is based."""

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig


def register_open_decoding() -> None:
    """Register an empty mapping to which overrides such as ``decoding.steps=4`` may add keys without ``+``.

    Hydra makes the composed config a struct, which refuses new keys; the flag of this node takes precedence below it.
    A YAML file cannot set flags.
    """
    ConfigStore.instance().store(group="decoding", name="_open", node=DictConfig({}, flags={"struct": False}))
