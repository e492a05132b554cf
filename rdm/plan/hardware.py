"""Devices a run is planned for."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from rdm.bench.timing import gemm_rate
from rdm.errors import require


@dataclass(frozen=True)
class Hardware:
    """A device.

    Args:
        name: shown in the title of the plan.
        memory: in GB.
        peak: peak rate in TFLOP/s for each ``trainer.precision``.
        utilisation: share of the peak rate that a training step reaches.
    """

    name: str
    memory: float
    peak: Mapping[str, float]
    utilisation: float

    def __post_init__(self) -> None:
        share = self.utilisation
        require(0 < share <= 1, f"hardware.utilisation is a share of the peak rate, above 0 and up to 1; got {share}")


class ThisMachine(Hardware):
    """The CPU of this machine; its peak is the measured rate of a matrix product."""

    def __init__(self, utilisation: float) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        rate = max(gemm_rate() for _ in range(10))  # the best of several: idle or shared machines start slowly
        super().__init__("this machine", memory, {"32-true": rate / 1e3}, utilisation)
