"""Exported models: a self-contained folder with everything needed to use a trained model.

    model.safetensors   EMA weights, or the mean of several checkpoints; what they fit is in the metadata
    config.yaml         the configuration of the run without paths
    codec.json, tokenizer.json
    export.json         step, recipe, overrides, commit, versions, fingerprint of the data, training cost
    README.md, figures  the model card, made from the run

The folder appears when it is complete. Nothing in it is pickled.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import OmegaConf

import rdm
from rdm.app.hub_models import FIGURES
from rdm.app.model import Model
from rdm.app.model_card import model_card
from rdm.app.portable import MISSING, portable_config, without_paths
from rdm.app.run_folder import EXPORT_FILE, EXPORT_FORMAT, EXPORTED_WEIGHTS, git_commit
from rdm.errors import require
from rdm.files import atomic_folder, write_text
from rdm.training.checkpoints import flatten
from rdm.training.weights import write_weights


def check_target(folder: Path) -> None:
    """Raise a :class:`UserError` unless ``folder`` is new or empty; called before anything expensive."""
    require(not folder.exists() or folder.is_dir(), f"to: {folder} is a file; name a new folder")
    empty = not folder.exists() or not any(folder.iterdir())
    require(empty, f"to: {folder} is not empty; name a new folder")


def export_model(model: Model, folder: Path, name: str | None = None) -> Path:
    """Write an exported folder and return it.

    Args:
        model: a model loaded from a run.
        folder: a new or empty folder.
        name: what the card passes to ``rdm.load``; None is the name of the folder.
    """
    check_target(folder)
    origin = model.run.origin
    require(not model.run.exported, f"{origin} is an exported model already: copy it")
    require(not model.int8, f"{origin} was loaded with int8=True, which cannot be exported: load it without")
    config = portable_config(model.run.full_config)
    system = OmegaConf.to_container(config.system, resolve=True)
    missing = [key for key, value in flatten(system, "system").items() if value == MISSING]
    require(not missing, f"{', '.join(missing)}: a model that needs an absolute path cannot be exported")
    cost = {**model.cost, "overrides": [without_paths(each) for each in model.cost["overrides"]]}
    state = {
        "state_dict": model.system.state_dict(),
        "global_step": model.cost["steps"],
        "hyper_parameters": {"system": system, "tokenizer": model.codec.tokenizer.fingerprint()},
        "effort": {key: value for key, value in cost.items() if key not in ("overrides", "parameters", "steps")},
    }
    with atomic_folder(folder) as scratch:
        (scratch / FIGURES).mkdir()
        write_weights(scratch / EXPORTED_WEIGHTS, state)
        write_text(scratch / "config.yaml", OmegaConf.to_yaml(config, resolve=False))
        model.codec.save(scratch)
        write_text(scratch / EXPORT_FILE, json.dumps(export_record(model, cost), indent=2) + "\n")
        write_text(scratch / "README.md", model_card(model, config, cost, scratch / FIGURES, name or folder.name))
        for file in (scratch / FIGURES).glob("*.svg"):
            file.unlink()  # the card shows the PNG files
    return folder


def export_record(model: Model, cost: dict[str, Any]) -> dict[str, Any]:
    """The content of ``export.json``."""
    run = model.run
    record = run.record()
    best = run.checkpoint is not None and run.checkpoint.name == "best.ckpt"
    return {
        "format": EXPORT_FORMAT,
        "name": model.name,
        "step": model.cost["steps"],
        "average": model.average,
        "best": best,
        "recipe": run.recipe(),
        "initial_recipe": run.initial_recipe,
        "choices": {key: without_paths(v) if isinstance(v, str) else v for key, v in run.choices.items()},
        "cost": cost,
        "overrides": cost["overrides"],
        **{key: record.get(key) for key in ("commit", "versions", "data")},
        "exported": {"rdm": rdm.__version__, "commit": git_commit(), "time": time.strftime("%Y-%m-%dT%H:%M:%S")},
    }


@contextmanager
def exported_folder(model: Model, name: str) -> Iterator[Path]:
    """The exported folder of a model: its own, or a temporary one that is made from its run."""
    if model.run.exported:
        yield model.run.folder
        return
    with TemporaryDirectory() as scratch:
        yield export_model(model, Path(scratch) / "model", name)
