"""What a command does besides computing: from its start to the first result, and the parts of a training run.

Each command is a process of its own, as a user starts it. Its CPU time is measured, which other work on the machine
changes less than the time on the clock.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rdm.bench.timing import Measurement, gemm_rate

SECONDS = "CPU seconds"
SHARE = "share of a run"
TRAIN = ("data.corpus.valid_size=100", "data.corpus.test_size=100", "callbacks.progress=null")
JOBS = 4


@dataclass(frozen=True)
class Script:
    """A script of the package in a new process.

    Args:
        name: ``train``, ``evaluate`` or ``generate``.
        arguments: its command line.
    """

    name: str
    arguments: tuple[str, ...]

    def run(self) -> float:
        """Run it and return its CPU time; its output is shown only if it fails."""
        before = cpu_seconds()
        code = f"from rdm.app.scripts import {self.name}; {self.name}()"
        done = subprocess.run([sys.executable, "-c", code, *self.arguments], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{self.name} {' '.join(self.arguments)}\n{done.stdout}{done.stderr}")
        return cpu_seconds() - before

    def time(self, name: str, repetitions: int) -> Measurement:
        """Run it several times."""
        gflops = gemm_rate()
        seconds = [self.run() for _ in range(repetitions)]
        spread = (max(seconds) - min(seconds)) / median(seconds)
        return Measurement("around", name, SECONDS, median(seconds), spread, gflops, gemm_rate(), None, None)


def cpu_seconds() -> float:
    """CPU seconds of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def around(model: str, steps: int, repetitions: int) -> Iterator[Measurement]:
    """Time commands with almost nothing to compute, and the parts of a training run with one validation.

    Args:
        model: the network of the training run.
        steps: steps of the training run.
        repetitions: of each command, after one that fills the cache of prepared text.
    """
    with TemporaryDirectory() as folder:
        run, cache = f"{folder}/run", f"data.cache={folder}/cache"
        one = ("trainer.max_steps=1", "trainer.val_check_interval=1", "callbacks.sampling.sentences=1")
        yield Script("train", ("--help",)).time("train.py --help", repetitions)
        first = Script("train", (*TRAIN, *one, cache, f"hydra.run.dir={run}", "resume=null"))
        first.run()
        train = replace(first, arguments=(*first.arguments[:-2], f"hydra.run.dir={folder}/${{now:%H%M%S%f}}"))
        yield train.time("train.py, one step, one validation", repetitions)
        text = Script("generate", (f"ckpt={run}", "text=a", "decoding.steps=2"))
        yield text.time("generate.py, one sentence", repetitions)
        job = (f"ckpt={run}", "limit=1", "decoding.steps=2", "redo=true")
        single = Script("evaluate", job).time("evaluate.py, one job", repetitions)
        yield single
        seeds = ",".join(str(seed) for seed in range(1, JOBS + 1))
        sweep = Script("evaluate", ("-m", *job, f"seed={seeds}", f"hydra.sweep.dir={folder}/sweep"))
        whole = sweep.time("evaluate.py, sweep", repetitions)
        further = (whole.rate - single.rate) / (JOBS - 1)
        yield replace(whole, name="evaluate.py, each further job of a sweep", rate=further)
        yield from shares(model, steps, Path(folder), cache)


def shares(model: str, steps: int, folder: Path, cache: str) -> Iterator[Measurement]:
    """The parts of a run of ``steps`` steps with its validation and checkpoint at the end."""
    file = folder / "shares.json"
    length = (f"model={model}", f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps}")
    measured = f"+callbacks.shares={{_target_:rdm.bench.shares.Shares,file:{file}}}"
    before = gemm_rate()
    Script("train", (*TRAIN, *length, cache, f"hydra.run.dir={folder}/measured", measured)).run()
    seconds = json.loads(file.read_text(encoding="utf-8"))
    after, total = gemm_rate(), sum(seconds.values())
    for part in ("training", "validation", "saving", "logging"):
        share = seconds.get(part, 0.0) / total
        yield Measurement("parts of a training run", part, SHARE, share, 0.0, before, after, None, None)
