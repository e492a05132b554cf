"""A callback that looks at what the model writes: at every validation it decodes the same few sources."""

from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from rdm.data.module import TextDataModule
from rdm.errors import require
from rdm.evaluation.decode import decode_sources
from rdm.evaluation.markup import markdown
from rdm.evaluation.metrics.corpus import sacre_bleu
from rdm.page.page import render
from rdm.page.trajectory import Example, trace_decoding
from rdm.training.module import TrainingModule


@dataclass(frozen=True)
class Samples:
    """What one validation produced, for people to read."""

    step: int
    table: list[tuple[str, str, str]]  # source, reference, output
    examples: list[Example]  # how the same sources were decoded

    def markdown(self) -> str:
        """The table, and the first source iteration by iteration."""
        table = markdown(("source", "reference", "output"), self.table)
        trace = self.examples[0].trajectories[0].lines()
        return "\n".join([f"# Samples at step {self.step}", "", table, "", "```", *trace, "```", ""])


class SampleAtValidation(pl.Callback):
    """Decodes the first validation sources, logs BLEU, a table of source / reference / output, and the decoding page.

    Args:
        decoding: the strategy, as handed to ``System.generate``.
        sentences: how many sources make up the BLEU.
        shown: how many of them go into the table and onto the page.
        seed: of the decoding noise, the same every time.
    """

    def __init__(self, decoding: Any, sentences: int = 100, shown: int = 5, seed: int = 0) -> None:
        require(sentences >= 1, f"callbacks.sampling.sentences must be at least 1, got {sentences}")
        require(shown >= 1, f"callbacks.sampling.shown must be at least 1, got {shown}")
        self.decoding, self.sentences, self.shown, self.seed = decoding, sentences, shown, seed

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # Once, and before the first step: text that cannot be asked about should not end a run at its first validation.
        data: TextDataModule = trainer.datamodule  # type: ignore[attr-defined]
        self.asked = data.questions("valid").first(self.sentences)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        # Between start and end of a validation epoch the averaged weights are in, whatever the order of callbacks.
        if batch_idx != 0 or trainer.sanity_checking:
            return
        # All ranks decode the same, because a model may be spread over them, and log one value, so that a checkpoint
        # may be chosen by it.
        bleu = self._sample(trainer, pl_module)
        pl_module.log("val/bleu", trainer.strategy.broadcast(bleu), prog_bar=True, on_epoch=True, batch_size=1)

    @torch.inference_mode()
    def _sample(self, trainer: pl.Trainer, module: pl.LightningModule) -> float:
        assert isinstance(module, TrainingModule)
        data: TextDataModule = trainer.datamodule  # type: ignore[attr-defined]
        asked = self.asked
        outputs = decode_sources(
            module.system, self.decoding, data.codec, asked.rows, data.loading.eval_sentences, self.seed, progress=False
        ).texts
        shown, step = asked.first(self.shown), trainer.global_step
        ways = trace_decoding(f"step {step}", module.system, self.decoding, data.codec, shown.rows, self.seed)
        each = zip(shown.sources, ways, *shown.references, strict=True)
        samples = Samples(
            step=step,
            table=list(zip(shown.sources, shown.references[0], outputs[: self.shown], strict=True)),
            examples=[Example(source, list(references), [way]) for source, way, *references in each],
        )
        for logger in trainer.loggers if trainer.is_global_zero else ():
            log_samples(logger, samples)
        return sacre_bleu(outputs, asked.references)[0]


@singledispatch
def log_samples(logger: Logger, samples: Samples) -> None:
    """Send samples to a logger in the form it takes; loggers that take no text get none."""


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
    import wandb  # only there if it was chosen

    # Not injected into: the page has its own style, and fetches nothing.
    logger.experiment.log({"decoding": wandb.Html(render(samples.examples), inject=False)})
