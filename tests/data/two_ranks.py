"""Train on two ranks and record their examples: ``python -m tests.data.two_ranks FOLDER``.

Run in a separate process, because DDP forks one process per rank.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from rdm.data.corpus import Split, Texts
from rdm.data.toy import ToyTranslation
from tests.data.helpers import pairs


class Logged(ToyTranslation):
    """Logs every read of a split to a file that all processes share."""

    def __init__(self, log: Path, **options: Any) -> None:
        super().__init__(**options)
        self._log = log

    def read(self, split: Split) -> Texts:
        with self._log.open("a") as stream:
            stream.write(f"{os.getpid()} {split}\n")
        return super().read(split)


class Notes(pl.LightningModule):
    """A module without a model that records the examples of its batches."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.weight = folder, torch.nn.Parameter(torch.zeros(1))
        self.seen: dict[str, list[list[int]]] = {"0": [], "1": [], "valid": [], "test": []}

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        self.seen[str(self.current_epoch)].append(batch.ids.tolist())
        return self.weight.sum()

    def validation_step(self, batch: Any, index: int) -> None:
        if self.current_epoch == 0:
            self.seen["valid"].append(batch.ids.tolist())

    def on_train_end(self) -> None:
        """Both ranks request a split at once that is not prepared yet."""
        loader = self.trainer.datamodule.eval_dataloader("test")
        self.seen["test"] = [batch.ids.tolist() for batch in loader]
        notes = {"rank": self.global_rank, "pid": os.getpid(), "seen": self.seen}
        (self.folder / f"rank{self.global_rank}.json").write_text(json.dumps(notes))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(folder: Path) -> None:
    corpus = Logged(folder / "log", train_size=101, valid_size=31, test_size=31, references=1)
    data = pairs(folder / "cache", corpus, max_tokens=120, eval_sentences=4)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp_fork",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    trainer.fit(Notes(folder), data)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
