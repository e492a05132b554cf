"""Callback that decodes the same few sources at every validation."""

from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from rdm.data.module import TextDataModule
from rdm.errors import require
from rdm.evaluation.generation import decode_sources
from rdm.evaluation.markup import markdown
from rdm.evaluation.metrics.corpus import sacre_bleu
from rdm.page.page import render
from rdm.page.trajectory import Example, trace_decoding
from rdm.training.module import TrainingModule


@dataclass(frozen=True)
class Samples:
    """Decoded examples of one validation, for reading."""

    step: int
    table: list[tuple[str, str, str]]  # source, reference, output
    examples: list[Example]  # the decoding trajectories of the same sources

    def markdown(self) -> str:
        """Return the table, and every iteration for the first source."""
        table = markdown(("source", "reference", "output"), self.table)
        trace = self.examples[0].trajectories[0].lines()
        return "\n".join([f"# Samples at step {self.step}", "", table, "", "```", *trace, "```", ""])


class SampleAtValidation(pl.Callback):
    """Decodes the first validation sources; logs BLEU, a table of source / reference / output, and the decoding page.

    Args:
        decoding: the strategy, passed to ``System.generate``.
        sentences: number of sources for BLEU.
        shown: number of them in the table and on the page.
        seed: seed of the decoding, the same at every validation.
    """

    def __init__(self, decoding: Any, sentences: int = 100, shown: int = 5, seed: int = 0) -> None:
        require(sentences >= 1, f"callbacks.sampling.sentences must be at least 1, got {sentences}")
        require(shown >= 1, f"callbacks.sampling.shown must be at least 1, got {shown}")
        self.decoding, self.sentences, self.shown, self.seed = decoding, sentences, shown, seed

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # Before the first step: validation text that cannot be decoded should not end a run at its first validation.
        data: TextDataModule = trainer.datamodule  # type: ignore[attr-defined]
        self.questions = data.questions("valid").first(self.sentences)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        # Between the start and the end of a validation epoch the model holds the EMA weights, in any callback order.
        if batch_idx != 0 or trainer.sanity_checking:
            return
        # All ranks decode the same sources, because the model may be sharded. They log one value, so that a callback
        # may select checkpoints by it.
        bleu = self._sample(trainer, pl_module)
        pl_module.log("val/bleu", trainer.strategy.broadcast(bleu), prog_bar=True, on_epoch=True, batch_size=1)

    @torch.inference_mode()
    def _sample(self, trainer: pl.Trainer, module: pl.LightningModule) -> float:
        assert isinstance(module, TrainingModule)
        data: TextDataModule = trainer.datamodule  # type: ignore[attr-defined]
        questions = self.questions
        batch_size, codec = data.loading.eval_sentences, data.codec
        outputs = decode_sources(module.system, self.decoding, codec, questions.rows, batch_size, self.seed).texts
        shown, step = questions.first(self.shown), trainer.global_step
        trajectories = trace_decoding(f"step {step}", module.system, self.decoding, codec, shown.rows, self.seed)
        columns = zip(shown.sources, trajectories, *shown.references, strict=True)
        samples = Samples(
            step=step,
            table=list(zip(shown.sources, shown.references[0], outputs[: self.shown], strict=True)),
            examples=[Example(source, list(references), [trajectory]) for source, trajectory, *references in columns],
        )
        for logger in trainer.loggers if trainer.is_global_zero else ():
            log_samples(logger, samples)
        return sacre_bleu(outputs, questions.references)[0]


@singledispatch
def log_samples(logger: Logger, samples: Samples) -> None:
    """Log samples in the form the logger supports; other loggers get none."""


@log_samples.register
def _(logger: CSVLogger, samples: Samples) -> None:
    folder = Path(logger.log_dir) / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step_{samples.step:07d}.md").write_text(samples.markdown(), encoding="utf-8")
    (folder / f"step_{samples.step:07d}.html").write_text(render(samples.examples), encoding="utf-8")


@log_samples.register
def _(logger: TensorBoardLogger, samples: Samples) -> None:
    logger.experiment.add_text("samples", samples.markdown(), samples.step)


@log_samples.register
def _(logger: WandbLogger, samples: Samples) -> None:
    rows = [list(row) for row in samples.table]
    logger.log_table("samples", columns=["source", "reference", "output"], data=rows)
    import wandb  # an optional dependency, installed if this logger is used

    # inject=False: the page has its own style sheet and loads nothing.
    logger.experiment.log({"decoding": wandb.Html(render(samples.examples), inject=False)})
