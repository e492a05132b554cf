"""Loggers that need a word of explanation."""

from pytorch_lightning.loggers import WandbLogger

from rdm.errors import UserError


def wandb_logger(project: str, save_dir: str, name: str | None = None, offline: bool | None = None) -> WandbLogger:
    """Weights & Biases; without a key the run is kept offline, instead of asking for one."""
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb needs the loggers extra: pip install -e '.[loggers]'") from error
    if offline is None:
        offline = not wandb.api.api_key
    return WandbLogger(project=project, save_dir=save_dir, name=name, offline=offline)
