"""Time and memory of the output projection with its loss, with and without ``model.fused_cross_entropy``.

``python scripts/fused_cross_entropy.py``: forward and backward pass in float32 over 1,024 positions of width 512,
alternately, medians of three. Memory is the peak above what the process held before.
"""

import time
from statistics import median

import torch
from torch.nn import functional

from rdm.bench.timing import peak_memory, reset_peak_memory
from rdm.cross_entropy import Projection, smoothed_cross_entropy

POSITIONS, WIDTH, REPETITIONS = 1024, 512, 3


def measure(vocabulary: int) -> list[tuple[float, float]]:
    """Return the CPU seconds and megabytes with logits and without."""
    torch.manual_seed(0)
    states = torch.randn(POSITIONS, WIDTH).mul_(0.05).requires_grad_()
    weight = torch.randn(vocabulary, WIDTH).mul_(0.05).requires_grad_()
    bias, target = torch.zeros(vocabulary), torch.randint(vocabulary, (POSITIONS,))

    def run(fused: bool) -> tuple[float, float]:
        states.grad = weight.grad = None
        reset_peak_memory()
        before, start = peak_memory() or 0.0, time.process_time()
        logits = (Projection if fused else functional.linear)(states, weight, bias)
        smoothed_cross_entropy(logits, target, bias == 0, 0.1).sum().backward()
        return time.process_time() - start, (peak_memory() or 0.0) - before

    found = [[run(False), run(True)] for _ in range(REPETITIONS)]
    return [(median(row[i][0] for row in found), median(row[i][1] for row in found)) for i in (0, 1)]


def main() -> None:
    print(
        "| vocabulary | CPU s, logits | CPU s, fused | MB, logits | MB, fused |\n| ---: | ---: | ---: | ---: | ---: |"
    )
    for vocabulary in (10_000, 40_000):
        (seconds, memory), (fused_seconds, fused_memory) = measure(vocabulary)
        print(f"| {vocabulary:,} | {seconds:.2f} | {fused_seconds:.2f} | {memory:.0f} | {fused_memory:.0f} |")


if __name__ == "__main__":
    main()
