"""``python -m rdm.plan experiment=... hardware=... [key=value ...]``: what a run needs, before it is started.

It takes the overrides of train.py, and hardware=, vocabulary=, length= and examples= (conf/plan.yaml). Nothing is
trained and no data is read: see :mod:`rdm.counting`. Communication between devices and the start of kernels are not
counted: times are the least there can be at that share of the peak rate.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.strategies import ModelParallelStrategy
from rich.console import Console
from rich.table import Table

from rdm import cli
from rdm.bench.cases import CONF, random_batch
from rdm.bench.measure import gemm_rate
from rdm.config import check_types, get_class_of
from rdm.counting import measure, without_numbers
from rdm.errors import UserError, require
from rdm.systems.base import System
from rdm.training.optim import Optimization, as_optimization
from rdm.training.setup import check_task
from rdm.vocab import Vocab

LENGTH = 32  # of a sentence, unless it is said
LEAST = {
    "length": 3,  # <bos>, a word and <eos>
    "vocabulary": 6,  # one word beside the special symbols
    "trainer.devices": 1,
    "trainer.num_nodes": 1,
    "trainer.accumulate_grad_batches": 1,
}
COUNTED = 64  # sentences; more cost as much each, and take longer to count


@dataclass(frozen=True)
class Hardware:
    """A device: its memory in GB, its peak TFLOP/s for each precision, and the share of that a training step gets."""

    name: str
    memory: float
    peak: Mapping[str, float]
    utilisation: float

    def __post_init__(self) -> None:
        share = self.utilisation
        require(0 < share <= 1, f"hardware.utilisation is a share of the peak rate, above 0 and up to 1; got {share}")


class ThisMachine(Hardware):
    """The CPU this runs on: its peak is the matrix product of ``make bench``, measured now."""

    def __init__(self, utilisation: float) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        rate = max(gemm_rate() for _ in range(10))  # the best of some: an idle or shared machine is slow at times
        super().__init__("this machine", memory, {"32-true": rate / 1e3}, utilisation)


@dataclass(frozen=True)
class Plan:
    """What the optimiser steps of a run cost on each of ``devices``; sizes in bytes."""

    hardware: Hardware
    precision: str
    steps: int
    devices: int
    micro_batches: int  # of a step, on one device
    sentences: int  # in a step, on all devices
    length: int
    examples: int | None
    parameters: int
    embedding: int
    memory: dict[str, int]
    flops: Counter[str]  # of a step, on all devices

    @property
    def seconds(self) -> float:
        """Of a step."""
        rate = self.hardware.peak.get(self.precision)
        known = ", ".join(self.hardware.peak)
        if rate is None:
            raise UserError(f"trainer.precision={self.precision} is not for {self.hardware.name}; it has {known}")
        return self.flops.total() / (self.devices * rate * 1e12 * self.hardware.utilisation)

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "parameters", f"{self.parameters:,} ({self.embedding:,} in the vocabulary)"
        yield "a step", f"{self.sentences:,} sentences of {self.length} tokens: {self.sentences * self.length:,} tokens"
        yield (
            "on each device",
            f"{self.micro_batches} x {self.sentences // (self.devices * self.micro_batches):,} sentences",
        )
        if self.examples:
            yield "steps an epoch", f"{self.examples / self.sentences:,.0f} ({self.examples:,} examples)"
        for part, count in self.flops.most_common():
            yield f"{part}, a step", f"{count / 1e9:,.1f} GFLOP ({count / self.flops.total():.0%})"
        yield "all, a step", f"{self.flops.total() / 1e9:,.1f} GFLOP, forward and backward"
        for what, size in self.memory.items():
            yield f"{what}, a device", f"{size / 1e9:,.2f} GB"
        total = sum(self.memory.values()) / 1e9
        fits = "fits into" if total < self.hardware.memory else "DOES NOT FIT into"
        yield "memory, a device", f"{total:,.2f} GB, {fits} {self.hardware.memory:,.0f} GB"
        rate = self.sentences * self.length / self.seconds
        yield "time of a step", f"{self.seconds:,.3g} s, {rate:,.0f} target tokens/s"
        if self.steps > 0:  # -1 is a run without an end
            hours = self.steps * self.seconds / 3600
            yield f"time of {self.steps:,} steps", f"{hours:,.1f} hours, {hours * self.devices:,.1f} device hours"


def memory(system: System, optimization: Optimization, averaged: bool) -> dict[str, int]:
    """Bytes of all that is as large as the weights."""
    parameters = list(system.parameters())
    weights = sum(parameter.nbytes for parameter in parameters)
    optimizer, _ = optimization.build(system, 1, fused=False)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = sum(tensor.nbytes for states in optimizer.state.values() for tensor in states.values())
    return {"weights": weights, "gradients": weights, "optimiser": state, "moving average": averaged * weights}


def make(config: DictConfig) -> Plan:
    """The plan of a configuration (``conf/plan.yaml``)."""
    packed = "length" in config.data  # windows of text, in which nothing is given
    longest = config.model.max_length + (0 if packed else 2)  # <bos> and <eos>
    config.length = min(LENGTH, longest) if config.length is None else config.length
    for key, least in LEAST.items():
        value = OmegaConf.select(config, key)
        require(type(value) is int and value >= least, f"{key}: say how many, at least {least}; got {value}")
    most = f"the {longest} tokens that a model with max_length={config.model.max_length} takes"
    require(config.length <= longest, f"length={config.length} is more than {most}")
    require(bool(config.data.max_sentences or config.data.max_tokens), "a step needs data.max_tokens or max_sentences")
    trainer, vocab = config.trainer, Vocab(config.vocabulary)
    devices = trainer.devices * trainer.num_nodes
    shared = devices > 1 and config.hardware._target_ == "rdm.plan.ThisMachine"
    require(not shared, "hardware=this_machine is one device, whose processes share its rate: use trainer.devices=1")
    parts = devices * trainer.accumulate_grad_batches
    sentences = config.data.max_sentences or config.data.max_tokens // config.length
    require(sentences >= parts, f"a step has {sentences} sentences, too few for {parts} micro-batches")
    config.vocab = {**config.vocab, "size": vocab.size}
    system = without_numbers(config.system)
    system.fit_to(lambda: torch.ones(vocab.size, dtype=torch.long))
    counted = min(sentences // parts, COUNTED)
    batch = random_batch(vocab.size, counted, config.length, given=not packed)
    cost = measure(system, batch, vocab, trainer.precision)
    sizes = memory(system, as_optimization(instantiate(config.optimizer)), bool(config.callbacks.ema))
    sharded = issubclass(get_class_of(trainer.strategy) or object, ModelParallelStrategy)
    return Plan(
        hardware=instantiate(config.hardware),
        precision=trainer.precision,
        steps=trainer.max_steps,
        devices=devices,
        micro_batches=trainer.accumulate_grad_batches,
        sentences=sentences,
        length=config.length,
        examples=config.examples,
        parameters=sum(parameter.numel() for parameter in system.parameters()),
        embedding=sum(parameter.numel() for parameter in system.parameters() if vocab.size in parameter.shape),
        memory={
            **{what: size // devices if sharded else size for what, size in sizes.items()},
            "activations": cost.activations * (sentences // parts) // counted,
        },
        flops=Counter({part: count * sentences // counted for part, count in cost.flops.items()}),
    )


def main() -> None:
    overrides = sys.argv[1:]
    if "--help" in overrides or "-h" in overrides:
        print(__doc__.strip())
        return
    options = " ".join(override for override in overrides if override.startswith("-"))
    require(not options, f"{options}: python -m rdm.plan takes overrides (key=value) only; --help says more")
    with initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        config = compose("plan", overrides)
    config.run_dir = "unused"
    check_task(config)
    check_types(config)
    plan = make(config)
    table = Table(title=f"{config.name} on {plan.devices} x {plan.hardware.name}, {plan.precision}", show_header=False)
    for row in plan.rows():
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"Taken for granted: a vocabulary of {config.vocabulary:,}, sentences of {config.length} tokens on both sides, "
        f"{plan.hardware.utilisation:.0%} of the peak rate; change them by vocabulary=, length= and "
        "hardware.utilisation=. "
        "Not counted: communication, and the start of every kernel, which rules steps of a few milliseconds on a GPU."
    )


if __name__ == "__main__":
    cli.run(main)
