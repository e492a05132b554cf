"""Cost of an optimiser step: ``python scripts/optimizer_cost.py [experiment=local/multi30k ...]``.

Prints CPU milliseconds of forward and backward pass, and of the step of AdamW, of torch's Muon and of ours, measured in
turn in one process (median of the repetitions).
"""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from statistics import median

import torch
from hydra.utils import instantiate
from torch.optim import AdamW

from rdm.app.composition import compose_config
from rdm.bench.inputs import random_batch
from rdm.training.module import combine
from rdm.training.muon import Muon
from rdm.training.optim import Optimization
from rdm.training.parameter_groups import HiddenMatrices, ParameterGroup
from rdm.vocab import Vocab

VOCABULARY, SENTENCES, LENGTH, REPETITIONS = 6000, 64, 16, 20


def milliseconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


def main() -> None:
    config = compose_config("train", sys.argv[1:] or ["experiment=local/multi30k"])
    config.vocab = {**config.vocab, **asdict(Vocab(size=VOCABULARY))}
    torch.manual_seed(0)
    system = instantiate(config.system)
    batch = random_batch(VOCABULARY, SENTENCES, LENGTH)

    def train() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            terms, counts = system.loss(batch), system.counts(batch)
        combine(terms, {term.name: term.total / counts[term.unit] for term in terms}).backward()

    def with_muon(algorithm: Callable[..., torch.optim.Optimizer]) -> Optimization:
        return Optimization(lr=1e-6, groups={"hidden": ParameterGroup(HiddenMatrices(), algorithm)})

    optimizations = {
        "AdamW": Optimization(lr=1e-6, algorithm=AdamW),
        "torch.optim.Muon": with_muon(partial(torch.optim.Muon, lr=1e-6)),
        "rdm.training.muon.Muon": with_muon(partial(Muon, lr=1e-6)),
    }
    optimizers = {name: each.build(system, 100)[0] for name, each in optimizations.items()}
    times: dict[str, list[float]] = {"forward and backward": [], **{name: [] for name in optimizers}}
    for repetition in range(REPETITIONS + 3):
        system.zero_grad()
        measured = {"forward and backward": milliseconds(train)}
        measured |= {name: milliseconds(optimizer.step) for name, optimizer in optimizers.items()}
        if repetition >= 3:
            for name, value in measured.items():
                times[name].append(value)
    passes = median(times["forward and backward"])
    for name, values in times.items():
        print(f"{name:<26}{median(values):8.1f} ms {median(values) / passes:8.1%} of the passes")


if __name__ == "__main__":
    main()
