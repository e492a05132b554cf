"""The plan of a run: its numbers, and the rows of the table that is printed."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rdm.errors import UserError
from rdm.plan.hardware import Hardware


@dataclass(frozen=True)
class Plan:
    """Cost of the optimiser steps of a run. Sizes are in bytes."""

    hardware: Hardware
    precision: str
    steps: int  # -1 for a run without a limit
    devices: int
    micro_batches: int  # of a step, on one device
    sentences: int  # in a step, on all devices
    length: int  # tokens of a sentence
    examples: int | None  # in the training split, if known
    parameters: int
    embedding: int  # parameters with a vocabulary dimension
    memory: dict[str, int]  # on each device, by use
    flops: Counter[str]  # of a step, on all devices, by part of the network

    @property
    def seconds(self) -> float:
        """Time of one step."""
        rate = self.hardware.peak.get(self.precision)
        if rate is None:
            known = ", ".join(self.hardware.peak)
            raise UserError(f"trainer.precision={self.precision} is not for {self.hardware.name}; it has {known}")
        return self.flops.total() / (self.devices * rate * 1e12 * self.hardware.utilisation)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the table: a name and a value."""
        tokens = self.sentences * self.length
        yield "parameters", f"{self.parameters:,} ({self.embedding:,} in the vocabulary)"
        yield "per step", f"{self.sentences:,} sentences of {self.length} tokens: {tokens:,} tokens"
        per_device = self.sentences // (self.devices * self.micro_batches)
        yield "per device and step", f"{self.micro_batches} x {per_device:,} sentences"
        if self.examples:
            yield "steps per epoch", f"{self.examples / self.sentences:,.0f} ({self.examples:,} examples)"
        for part, count in self.flops.most_common():
            yield f"{part}, per step", f"{count / 1e9:,.1f} GFLOP ({count / self.flops.total():.0%})"
        yield "total, per step", f"{self.flops.total() / 1e9:,.1f} GFLOP, forward and backward"
        for use, size in self.memory.items():
            yield f"{use}, per device", f"{size / 1e9:,.2f} GB"
        total = sum(self.memory.values()) / 1e9
        fits = "fits into" if total < self.hardware.memory else "DOES NOT FIT into"
        yield "memory, per device", f"{total:,.2f} GB, {fits} {self.hardware.memory:,.0f} GB"
        yield "time of a step", f"{self.seconds:,.3g} s, {tokens / self.seconds:,.0f} target tokens/s"
        if self.steps > 0:
            hours = self.steps * self.seconds / 3600
            yield f"time of {self.steps:,} steps", f"{hours:,.1f} hours, {hours * self.devices:,.1f} device hours"
