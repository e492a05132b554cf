"""What the machine is, for results and training costs."""

import os
import platform
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")


def describe_machine(processes: int = 1) -> str:
    """Return the device, the number of cores and the number of threads in one line."""
    if torch.cuda.is_available():
        return f"{processes} x {torch.cuda.get_device_name()}"
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{name}, {os.cpu_count()} cores, {processes * torch.get_num_threads()} threads"
