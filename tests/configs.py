"""Composed configurations for tests."""

from dataclasses import asdict
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from rdm.vocab import Vocab

CONF = Path(__file__).parent.parent / "conf"
LM = ("system=lm", "model=llama_tiny", "data=toy_text")


def compose_only(name: str, *overrides: str) -> DictConfig:
    """The config of one script, as composed by Hydra."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides))


def config(*overrides: str) -> DictConfig:
    """The config of train.py with the values that train.py fills in."""
    composed = compose_only("train", *overrides)
    composed.run_dir = "unused"
    composed.vocab = {**composed.vocab, **asdict(Vocab(size=30))}
    return composed


def choices(group: str) -> list[str]:
    """The choices of a config group."""
    return sorted(file.stem for file in (CONF / group).glob("[!_]*.yaml"))
