"""Which checkpoint a run resumes from."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from rdm.app.run_folder import RunFolder, warn
from rdm.data.codec import Codec
from rdm.errors import require
from rdm.training.checkpoints import DamagedCheckpointError, check_fits, read_checkpoint


def compatible_checkpoint(run: RunFolder, config: DictConfig, codec: Codec, other_folder: bool = False) -> Path | None:
    """The newest undamaged checkpoint, checked against configuration and codec; None if there are none.

    A run continued in another folder needs at least one step to do: it would have no checkpoint otherwise.
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
        return file
    require(len(files) == 0, f"ckpt: all checkpoints of {run.folder} are damaged; remove them to start again")
    return None
