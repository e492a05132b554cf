"""Which checkpoint a run resumes from, and the run whose weights a new one starts from."""

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from rdm.app.run_folder import RunFolder, warn
from rdm.data.codec import Codec
from rdm.data.module import TextDataModule
from rdm.errors import require
from rdm.training.checkpoints import DamagedCheckpointError, check_fits, read_checkpoint
from rdm.training.continuation import changes, check_changes
from rdm.training.initialization import take_weights
from rdm.training.module import TrainingModule
from rdm.training.weights import read_state


def compatible_checkpoint(
    run: RunFolder, config: DictConfig, codec: Codec, module: TrainingModule, other_folder: bool = False
) -> Path | None:
    """The newest undamaged checkpoint, checked against configuration and codec; None if there are none.

    Settings that differ from those of the checkpoint are printed. A run continued in another folder needs at least one
    step to do: it would have no checkpoint otherwise.
    """
    files = run.newest_first()
    for file in files:
        try:
            state = read_checkpoint(file)
        except DamagedCheckpointError as error:
            if run.checkpoint is not None:
                raise
            rank_zero_only(warn)(f"{error}; resuming from the one before")
            continue
        check_fits(file, state, OmegaConf.to_container(config.system, resolve=True), codec.tokenizer)
        averaged, averages = "current_model_state" in state, bool(config.callbacks.get("ema"))
        require(averages or not averaged, f"ckpt: {file} was trained with callbacks.ema; keep it")
        step, last = state["global_step"], config.trainer.max_steps
        no_step_left = other_folder and step >= last > -1
        require(not no_step_left, f"ckpt: {file} is at step {step}; give a larger trainer.max_steps")
        found = changes(state["hyper_parameters"], module.hparams)
        check_changes(found, state, module.optimization)
        for key, before, now in found:
            rank_zero_only(print)(f"changed: {key}={now} (before: {before})")
        return file
    require(len(files) == 0, f"ckpt: all checkpoints of {run.folder} are damaged; remove them to start again")
    return None


def use_initial_codec(config: DictConfig, data: TextDataModule, resumed: RunFolder | None) -> None:
    """Use the tokenizer of the run named by ``init``; if the new run is resumed, its own copy of that."""
    given = [each for each in HydraConfig.get().overrides.task if each.lstrip("+~").startswith(TOKENIZER_KEYS)]
    # The first phase of a warm start had the same overrides.
    require(
        bool(config.get("warm_start")) or not given,
        f"{' '.join(given)} has no effect with init, which takes the run's tokenizer: leave one out",
    )
    run = resumed or initial_run(config)
    data.use_codec(data.make_codec(Codec.load(run.folder).tokenizer))


TOKENIZER_KEYS = ("data/tokenizer", "data.tokenizer")


def initialize(config: DictConfig, module: TrainingModule) -> None:
    """Copy the EMA weights of the run named by ``init`` that fit, and print which."""
    run = initial_run(config)
    (file,) = run.checkpoints()
    weights: dict[str, Any] = read_state(file)["state_dict"]
    taken = take_weights(
        module.system, {name.removeprefix("system."): each for name, each in weights.items()}, str(file)
    )
    first, *rest = taken.lines()
    rank_zero_only(print)(f"init: {first} from {file}", *rest, sep="\n")


def initial_run(config: DictConfig) -> RunFolder:
    """The run named by ``init``."""
    return RunFolder.open(config.init, key="init")
