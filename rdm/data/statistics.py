"""Statistics and examples of a data set, printed as tables."""

import time

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from rdm.data.corpus import Split
from rdm.data.module import TextDataModule
from rdm.data.prepared import Prepared
from rdm.errors import UserError

SHOWN = 60  # tokens printed of an example
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


def splits_table(data: TextDataModule) -> Table:
    """Return counts and lengths of every split."""
    table = Table(title="Splits", caption="lengths in tokens, special symbols included: mean (longest)")
    for heading in ("split", "examples", "left out", "source", "target", "unknown", "also in train"):
        table.add_column(heading)
    for split in SPLITS:
        try:
            examples, reasons = data.examples(split), data.left_out(split)
        except UserError as error:
            table.add_row(split, Text(str(error), style="red"))
            continue
        sides = [f"{side.float().mean():.1f} ({int(side.max())})" for side in examples.lengths().unbind(1)]
        table.add_row(
            split,
            f"{len(examples):,}",
            ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count) or "nothing",
            *sides,
            f"{share_of(data.prepared(split), data.vocab.unk):.2%}",
            "" if split == "train" else f"{data.overlap(split):,}",
        )
    return table


def share_of(prepared: Prepared, index: int, chunk: int = 2**20) -> float:
    """Return the share of an id in all columns; ``chunk`` ids are read at a time."""
    found = total = 0
    for column in prepared.columns:
        total += len(column.ids)
        for start in range(0, len(column.ids), chunk):
            found += int((column.ids[start : start + chunk] == index).sum())
    return found / total


def length_histogram(lengths: Tensor, bins: int = 12) -> Table:
    """Return a histogram of source and target lengths."""
    table = Table(title="Lengths of the training examples")
    for heading in ("tokens", "source", "", "target", ""):
        table.add_column(heading)
    width = -(-int(lengths.max()) // bins)
    counts = [torch.bincount((side - 1).clamp(min=0) // width, minlength=bins) for side in lengths.unbind(1)]
    for number, row in enumerate(zip(*(count.tolist() for count in counts), strict=True)):
        bars = ("█" * round(30 * count / len(lengths)) for count in row)
        shown = [cell for count, bar in zip(row, bars, strict=True) for cell in (f"{count:,}", bar)]
        table.add_row(f"{number * width + 1}-{(number + 1) * width}", *shown)
    return table


def describe_epoch(data: TextDataModule) -> str:
    """Describe one epoch of training batches: number, size, padding and loading speed."""
    batches = tokens = positions = 0
    start = time.perf_counter()
    for batch in data.train_dataloader():
        batches += 1
        for side in (batch.source, batch.target):
            tokens += int((side != data.vocab.pad).sum())
            positions += side.numel()
    seconds = time.perf_counter() - start
    return (
        f"One epoch: {batches:,} batches of {tokens / batches:,.0f} tokens on average, "
        f"{1 - tokens / positions:.1%} padding, loaded at {tokens / seconds:,.0f} tokens/s."
    )


def print_statistics(name: str, data: TextDataModule) -> None:
    """Print splits, lengths, frequent pieces, one epoch of batches and the first examples."""
    console = Console(highlight=False)
    vocab = data.vocab
    console.print(f"{name}: {type(data).__name__}, vocabulary of {vocab.size:,}")
    console.print(splits_table(data))
    console.print(length_histogram(data.examples("train").lengths()))
    counts = data.target_counts()
    common = [int(index) for index in counts.argsort(descending=True)[:20]]
    console.print("Most frequent in targets:", " ".join(data.codec.pieces(common)), markup=False)
    seen = int((counts > 0).sum())
    console.print(f"{seen:,} of {vocab.size:,} ids occur in training targets.")
    console.print(describe_epoch(data))
    batch = next(iter(data.train_dataloader()))
    console.print(f"The first batch: source {list(batch.source.shape)}, target {list(batch.target.shape)}")
    for source, target in list(zip(batch.source, batch.target, strict=True))[:3]:
        for name, row in (("source", source), ("target", target)):
            ids = row[row != vocab.pad].tolist()[:SHOWN]
            if ids:
                console.print(f"  {name}: {data.codec.decode([ids])[0]}", markup=False)
                console.print(f"          {' '.join(data.codec.pieces(ids))}", markup=False, style="dim")
