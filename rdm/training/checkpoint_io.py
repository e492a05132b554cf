"""How Lightning writes checkpoint files: atomically."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins import TorchCheckpointIO

from rdm.errors import UserError
from rdm.files import atomic_write
from rdm.training.checkpoints import load_archive


class AtomicCheckpointIO(TorchCheckpointIO):
    """Plugin by which Lightning writes and reads checkpoints: an existing file is replaced as a whole or kept."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as stream:
                torch.save(checkpoint, stream)
        except (OSError, RuntimeError) as error:
            # If a write fails within the archive, torch raises a RuntimeError with the OSError as its context.
            reason = error if isinstance(error, OSError) else error.__context__
            if not isinstance(reason, OSError):
                raise
            raise UserError(
                f"{file} cannot be written: {reason.strerror}; earlier checkpoints are unchanged; "
                "free some space, then resume with resume=auto"
            ) from error

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: Any = None) -> dict[str, Any]:
        return load_archive(Path(path))
