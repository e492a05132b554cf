"""Time and memory of a loss over logits, and over a projection in chunks: ``python scripts/linear_cross_entropy.py``.

2,048 positions of width 512, a vocabulary of 10,000, forward and backward pass in float32.
"""

import time

import torch
from torch.nn import functional

from rdm.bench.timing import peak_memory, reset_peak_memory
from rdm.cross_entropy import Projection, smoothed_cross_entropy

POSITIONS, WIDTH, VOCABULARY = 2048, 512, 10_000


def main() -> None:
    torch.manual_seed(0)
    states = torch.randn(POSITIONS, WIDTH).mul_(0.05).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH).mul_(0.05).requires_grad_()
    bias, target = torch.zeros(VOCABULARY), torch.randint(VOCABULARY, (POSITIONS,))
    for name, project in (("logits", functional.linear), ("projection in chunks", Projection)) * 2:
        states.grad = weight.grad = None
        reset_peak_memory()
        before, start = peak_memory() or 0.0, time.process_time()
        smoothed_cross_entropy(project(states, weight, bias), target, bias == 0, 0.1).sum().backward()
        print(f"{name}: {time.process_time() - start:.2f} CPU seconds, {(peak_memory() or 0.0) - before:.0f} MB")


if __name__ == "__main__":
    main()
