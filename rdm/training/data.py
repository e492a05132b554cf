"""The LightningDataModule around the data of a run."""

import pytorch_lightning as pl
from torch.utils.data import DataLoader

from rdm.data.batch import Batch
from rdm.data.module import TextDataModule
from rdm.data.step_loader import StepLoader


class TrainingData(pl.LightningDataModule):
    """Hands the batches of a :class:`~rdm.data.module.TextDataModule` to a trainer, for its rank.

    Args:
        data: the data, which get the trainer of this module.
    """

    def __init__(self, data: TextDataModule) -> None:
        super().__init__()
        self.data = data

    def prepare_data(self) -> None:
        self.data.prepare_data()

    def setup(self, stage: str) -> None:
        self.data.trainer = self.trainer

    def train_dataloader(self) -> StepLoader:
        return self.data.train_dataloader()

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.data.val_dataloader()


def training_data(trainer: pl.Trainer) -> TextDataModule:
    """The data that ``trainer.fit`` was given."""
    module: TrainingData = trainer.datamodule  # type: ignore[attr-defined]
    return module.data
