"""Freed memory is kept by the scripts' processes, because large blocks are needed again in every step."""

import subprocess
import sys

import pytest

LOOP = """
import resource, torch
from rdm.app.scripts import run_module

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.zeros(50_000_000, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def main():
    faults()
    print(faults())

{call}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults of Linux")
def test_large_blocks_are_not_mapped_again() -> None:
    counts = []
    for call in ("main()", "run_module(main)"):
        done = subprocess.run(
            [sys.executable, "-c", LOOP.format(call=call)], capture_output=True, text=True, check=True
        )
        counts.append(int(done.stdout))
    mapped, kept = counts
    assert mapped > 4 * 50_000_000 / 2**21, "otherwise the C library keeps large blocks anyway"
    assert kept < mapped / 10
