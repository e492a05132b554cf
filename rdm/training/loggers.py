"""Loggers that need a word of explanation."""

from typing import Any

from pytorch_lightning.loggers import WandbLogger

from rdm.errors import UserError


def wandb_logger(project: str, save_dir: str, name: str | None = None, offline: bool | None = None) -> WandbLogger:
    """Weights & Biases; without a key the run is kept offline, instead of asking for one."""
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb needs the loggers extra: pip install -e '.[loggers]'") from error
    if offline is None:
        offline = not wandb.login(prompt=False)
    # Said twice: after the look for a key, wandb no longer reads the environment variable that Lightning sets.
    mode: dict[str, Any] = {"mode": "offline"} if offline else {}
    return WandbLogger(project=project, save_dir=save_dir, name=name, offline=offline, **mode)
