"""``warm_start=ar warm_start.steps=N``: the network is trained causally first, then as a denoiser, by one command.

The first phase is a complete run in ``<run>/warm_start``, which can be evaluated and resumed like any other.
"""

from copy import deepcopy
from pathlib import Path

import pytorch_lightning as pl
from omegaconf import DictConfig, open_dict

from rdm.app.checks import chosen
from rdm.app.run_folder import RunFolder
from rdm.app.targets import get_class_of
from rdm.errors import require
from rdm.training.checkpoints import read_checkpoint
from rdm.training.training_cost import TrainingCost

FOLDER = "warm_start"


def check_warm_start(config: DictConfig) -> None:
    """Refuse what cannot be combined with a warm start, and one for another kind of system."""
    if not config.get("warm_start"):
        return
    steps, causal = config.warm_start.steps, config.warm_start.name
    require(isinstance(steps, int) and steps >= 1, f"warm_start.steps must be a number of steps above 0, got {steps}")
    annealing = config.warm_start.annealing_steps
    require(isinstance(annealing, int) and annealing >= 0, f"warm_start.annealing_steps: {annealing} is below 0")
    require(config.init is None, "init and warm_start both give initial weights: leave one out")
    message = f"warm_start={causal} is for one device; train system={causal} first and start from it with init=<run>"
    require(config.trainer.devices == 1 and config.trainer.num_nodes == 1, message)
    denoiser = config.system.get("denoiser")
    require(denoiser is not None, f"warm_start: system {config.name} has no denoiser to initialise: leave it out")
    sees_later = annealing == 0 or getattr(get_class_of(denoiser), "looks_ahead", True)
    require(sees_later, f"warm_start.annealing_steps has no effect: no token sees later ones in system={config.name}")
    expected = "ar" if "length_head" in denoiser else "ar_lm"
    require(causal == expected, f"warm_start={causal} does not fit the system {config.name}; use warm_start={expected}")


def first_phase(config: DictConfig) -> DictConfig:
    """The configuration of the causal run: system and decoding of ``warm_start``, everything else as in ``config``."""
    causal = deepcopy(config)
    diffusion = {key: None for key in chosen() if key.startswith(("diffusion", "reweighting"))}
    with open_dict(causal):
        causal.run_dir = str(warm_start_folder(config))
        causal.choices = {**diffusion, "system": config.warm_start.name, "decoding": config.warm_start.decoding.name}
        causal.name, causal.system, causal.decoding = (
            deepcopy(config.warm_start[key]) for key in ("name", "system", "decoding")
        )
        causal.trainer.max_steps = config.warm_start.steps
        causal.trainer.val_check_interval = min(config.trainer.val_check_interval, config.warm_start.steps)
        for key in ("warm_start", "diffusion", "reweighting", "best", "patience", "ckpt", "init"):
            causal[key] = None
    return causal


def second_phase(config: DictConfig) -> DictConfig:
    """The configuration of the denoiser, initialised from the run of the first phase."""
    denoising = deepcopy(config)
    denoising.init = str(warm_start_folder(config))
    if config.warm_start.annealing_steps > 0:
        with open_dict(denoising):
            denoising.callbacks.attention_annealing = {
                "_target_": "rdm.training.annealing.AttentionAnnealing",
                "steps": config.warm_start.annealing_steps,
            }
    return denoising


def warm_start_folder(config: DictConfig) -> Path:
    """The run folder of the first phase; that of the other run if one is continued in a new folder."""
    return (RunFolder.open(config.ckpt).folder if config.ckpt else Path(config.run_dir)) / FOLDER


def count_first_phase(trainer: pl.Trainer, config: DictConfig) -> None:
    """Add target tokens and seconds of the first phase to the training cost of the second."""
    (file,) = RunFolder(warm_start_folder(config)).checkpoints()
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, TrainingCost):
            callback.start_from(read_checkpoint(file))
