"""Sweeps, whatever runs their jobs: what a job is called, what became of it, and what is told at the end.

Jobs may run in other processes or on other machines, so all they have in common is a file in the folder of the sweep.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from math import isnan, nan
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from rdm.errors import UserError, refuse, require
from rdm.evaluation.report import print_table
from rdm.evaluation.results import Row, append, fingerprint, read_lines

JOURNAL = "jobs.jsonl"
# Overrides that say how a job is to run, not what it is to come to.
ASIDE = ("debug=", "redo=", "resume=")


def job_id(overrides: Sequence[str]) -> str:
    """A job is known by its overrides, in whatever order: its number changes with the sweep it is part of."""
    return fingerprint({"overrides": sorted(each for each in overrides if not each.startswith(ASIDE))})


OmegaConf.register_new_resolver("job_id", job_id, replace=True)


def sweeping() -> bool:
    """Whether this is a job of a sweep."""
    return HydraConfig.get().mode is RunMode.MULTIRUN


@dataclass(frozen=True)
class Outcome:
    """What a job came to. To a sweeper that optimises it is a number, and a failed trial if there is none."""

    value: float = nan
    row: Row | None = None  # of the results store
    failure: str | None = None  # why it failed

    def __float__(self) -> float:
        if isnan(self.value):
            raise ValueError(self.failure or "there is no value")
        return self.value


class Journal(Callback):
    """Writes a line for every job that ends into ``<sweep>/jobs.jsonl``, and at the end tells what they came to.

    Args:
        part: which part of the files of ``conf/sweep`` this script runs.
    """

    started: ClassVar["Journal | None"] = None  # by this process; a copy travels with every job

    def __init__(self, part: str) -> None:
        self.part, self.sweep = part, uuid4().hex

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.folder = Path(config.hydra.sweep.dir)
        Journal.started = self
        try:
            check_sweep(config, self.part)
        except UserError as error:
            refuse(error)  # Hydra would make a warning of it

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if not sweeping():
            return
        outcome = job_return._return_value
        if not isinstance(outcome, Outcome):  # debug=true lets errors pass
            outcome = Outcome(failure=repr(outcome) if isinstance(outcome, Exception) else None)
        line = {"job": config.hydra.job.num, "overrides": job_return.overrides, **vars(outcome)}
        append(self.folder / JOURNAL, {"sweep": self.sweep, **line})

    def jobs(self) -> list[Row]:
        """The jobs of this sweep that have ended, in their order."""
        own = (line for line in read_journal(self.folder) if line["sweep"] == self.sweep)
        return sorted(own, key=lambda line: line["job"])


def value_before() -> float:
    """What this job came to when it ran in the same sweep before."""
    sweep = HydraConfig.get()
    lines = read_journal(Path(sweep.sweep.dir))
    own = job_id(sweep.overrides.task)
    values = [line["value"] for line in lines if line["failure"] is None and job_id(line["overrides"]) == own]
    return values[-1] if values else nan


def read_journal(folder: Path) -> list[Row]:
    """A line a job that has ended in the sweep of this folder, however often it was run."""
    file = folder / JOURNAL
    return read_lines(file, "a job") if file.exists() else []


def check_sweep(config: DictConfig, part: str) -> None:
    """Refuse a sweep that cannot be run, before any job of it has."""
    name, sweeper = config.hydra.runtime.choices.get("sweep"), str(config.hydra.sweeper._target_)
    own = set((config.get("sweep") or {}).get(part, ())) - {"ckpt"}
    require(name is None or bool(own), f"sweep={name} has nothing for {part}.py")
    parallel = "trainer" in config and (config.trainer.devices, config.trainer.num_nodes) != (1, 1)
    # Each process of a run would ask for values of its own and train another model.
    one = "Optuna cannot tune a run of several processes: trainer.devices=1 trainer.num_nodes=1"
    require(not (parallel and "optuna" in sweeper), one)


def conclude() -> bool:
    """At the end of a sweep this process started: the table, the best, the failures. False if something failed."""
    journal = Journal.started
    if journal is None:
        return True
    jobs = journal.jobs()
    rows = [job["row"] for job in jobs if job["row"] is not None]
    if rows:
        print_table(rows)
    best = journal.folder / "optimization_results.yaml"
    if best.exists():
        print(best.read_text(encoding="utf-8"), end="")
    failed = [job for job in jobs if job["failure"] is not None]
    shared = set.intersection(*(set(job["overrides"]) for job in jobs)) if len(jobs) > 1 else set()
    if failed:
        print(f"{len(failed)} of {len(jobs)} jobs failed:", file=sys.stderr)
    for job in failed:
        own = " ".join(each for each in job["overrides"] if each not in shared)
        print(f"  {own}: {job['failure']}", file=sys.stderr)
    return not failed


def every_run(arguments: Sequence[str]) -> list[str]:
    """Command-line arguments with ``ckpt=<folder of runs, or a pattern>`` replaced by a sweep over those runs."""
    return [part for argument in arguments for part in _spread(argument)]


def _spread(argument: str) -> list[str]:
    pattern = argument.removeprefix("ckpt=")
    places = [Path(place) for place in sorted(glob(pattern))] if pattern != argument else []
    runs = [run for place in places for run in runs_in(place)]
    if not runs or [pattern] == [str(run) for run in runs]:
        return [argument]  # one run, several already, or something that is not there
    quoted = ",".join("'" + str(run).replace("'", r"\'") + "'" for run in runs)
    return [f"ckpt={quoted}", *(["hydra.mode=MULTIRUN"] if len(runs) > 1 else [])]


def runs_in(place: Path) -> list[Path]:
    """The run that ``place`` is, or the runs it holds."""
    return [place] if (place / "config.yaml").exists() else sorted(file.parent for file in place.glob("*/config.yaml"))
