"""Sweeps: the folder of a job, the journal of finished jobs, and the summary at the end.

Jobs may run in other processes or on other machines, so all they share is a file in the sweep's folder.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from rdm.app.errors import exit_with_message
from rdm.app.training_runs import WITHOUT_EFFECT, label_runs, read_training_runs
from rdm.errors import UserError, require
from rdm.hashing import settings_hash

JOURNAL = "jobs.jsonl"
LONGEST_NAME = 200  # bytes; file systems allow 255
UNSAFE = re.compile(r"[^\w.,=+~-]")


def job_id(overrides: Sequence[str]) -> str:
    """A hash of a job's overrides in any order: a repeated sweep finds the folders of its jobs."""
    return settings_hash({"overrides": sorted(each for each in overrides if not each.startswith(WITHOUT_EFFECT))})


def job_folder(sweep: str, name: str, overrides: Sequence[str]) -> str:
    """The folder of a job in the folder of its sweep, a function of the overrides: ``reweighting=original,seed=1``.

    A ``/`` becomes ``~``, other special characters ``_``; a hash is added where that may give two jobs one name.
    ``<name>_<hash>`` is used for overrides that are too long, and where a folder of that name exists already.
    """
    hashed = f"{name}_{job_id(overrides)}"
    # Files of conf/sweep configure the sweep and not its jobs; its folder is named after them.
    kept = ",".join(sorted(each for each in overrides if not each.startswith((*WITHOUT_EFFECT, "sweep="))))
    readable = UNSAFE.sub("_", kept.replace("/", "~"))
    if readable != kept.replace("/", "~") or "~" in kept:
        readable += f"_{job_id(overrides)}"
    return hashed if not kept or len(readable.encode()) > LONGEST_NAME or (Path(sweep) / hashed).is_dir() else readable


def sweeping() -> bool:
    """Whether this process runs a job of a sweep."""
    return HydraConfig.get().mode is RunMode.MULTIRUN


def is_first_rank() -> bool:
    """Whether this process is the first of those that torchrun or SLURM has started for a job, or the only one."""
    return os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"


@dataclass(frozen=True)
class JobResult:
    """What a job returns. Converts to float for optimising sweepers; raises if the job produced no value."""

    value: float = nan
    row: dict[str, Any] | None = None  # the result row of an evaluation
    run: str | None = None  # the run folder of a training
    failure: str | None = None

    def __float__(self) -> float:
        if isnan(self.value):
            raise ValueError(self.failure or "the job produced no value")
        return self.value


class Journal(Callback):
    """Appends a line to ``<sweep>/jobs.jsonl`` for every finished job, and prints the summary at the end.

    Args:
        script: which section of the files of ``conf/sweep`` applies: ``train``, ``evaluate`` or ``generate``.
    """

    started: ClassVar["Journal | None"] = None  # the sweep of this process; jobs carry a copy

    def __init__(self, script: str) -> None:
        self.script, self.sweep = script, uuid4().hex
        self.name: str | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        from rdm.app.composition import register

        vars(self).update(state)
        register()  # a worker process resolves the folder of its job

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.folder = Path(config.hydra.sweep.dir)
        self.name = config.hydra.runtime.choices.get("sweep")  # of the file in conf/sweep; None without one
        Journal.started = self
        try:
            check_sweep(config, self.script)
        except UserError as error:
            exit_with_message(error)  # Hydra would turn it into a warning
        if str(config.hydra.launcher._target_).endswith(".SlurmLauncher"):
            from rdm.app.slurm import report_lost_jobs

            report_lost_jobs(self)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if not sweeping() or not is_first_rank():
            return
        result = job_return._return_value
        if not isinstance(result, JobResult):  # with debug=true errors are raised
            result = JobResult(failure=repr(result) if isinstance(result, Exception) else None)
        self.record(config.hydra.job.num, job_return.overrides, result)

    def record(self, number: int, overrides: Sequence[str] | None, result: JobResult) -> None:
        """Append the line of a job."""
        from rdm.evaluation.results import append

        line = {"job": number, "overrides": overrides, **vars(result)}
        append(self.folder / JOURNAL, {"sweep": self.sweep, **line})

    def jobs(self) -> list[dict[str, Any]]:
        """The finished jobs of this sweep, by number; of a job that was queued again after its end, the last line."""
        own = {line["job"]: line for line in read_journal(self.folder) if line["sweep"] == self.sweep}
        return [own[number] for number in sorted(own)]


def recorded_value() -> float:
    """The value of this job in an earlier attempt at the same sweep."""
    settings = HydraConfig.get()
    own = job_id(settings.overrides.task)
    lines = read_journal(Path(settings.sweep.dir))
    values = [line["value"] for line in lines if line["failure"] is None and job_id(line["overrides"]) == own]
    return values[-1] if values else nan


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """The lines of all attempts at the sweep of this folder."""
    from rdm.evaluation.results import read_lines

    file = folder / JOURNAL
    return read_lines(file, "a job") if file.exists() else []


def check_sweep(config: DictConfig, script: str) -> None:
    """Refuse a sweep that cannot run, before its first job."""
    name, sweeper = config.hydra.runtime.choices.get("sweep"), str(config.hydra.sweeper._target_)
    swept = set((config.get("sweep") or {}).get(script, ())) - {"ckpt"}
    require(name is None or bool(swept), f"sweep={name} has nothing for {script}.py")
    parallel = "trainer" in config and (config.trainer.devices, config.trainer.num_nodes) != (1, 1)
    # Each rank would ask Optuna for values of its own and train another model.
    message = "Optuna cannot tune a run of several processes: use trainer.devices=1 trainer.num_nodes=1"
    require(not (parallel and "optuna" in sweeper), message)


def finish_sweep() -> bool:
    """Print tables, best trial, failures and next command of the sweep this process started; False if a job failed."""
    journal = Journal.started
    if journal is None:
        return True
    from rdm.app.arguments import command
    from rdm.evaluation.curves import final_values_table
    from rdm.evaluation.report import print_cells, print_table

    jobs = journal.jobs()
    rows = [job["row"] for job in jobs if job["row"] is not None]
    if rows:
        print_table(rows)
    trained = [Path(job["run"]) for job in jobs if job["run"] is not None]
    if trained:
        print_cells(*final_values_table(read_training_runs(trained)))
    best = journal.folder / "optimization_results.yaml"
    if best.exists():
        print(best.read_text(encoding="utf-8"), end="")
    failed = [job for job in jobs if job["failure"] is not None]
    if failed:
        print(f"{len(failed)} of {len(jobs)} jobs failed:", file=sys.stderr)
    labels = label_runs([job["overrides"] for job in jobs])
    for job, label in zip(jobs, labels, strict=True):
        if job in failed:
            print(f"  {label or ' '.join(job['overrides'])}: {job['failure']}", file=sys.stderr)
    if trained:
        sweep = "" if journal.name is None else f" sweep={journal.name}"
        print(f"learning curves: python -m rdm.report {journal.folder}")
        print(f"done: {command('evaluate')} ckpt={journal.folder}{sweep}")
    return not failed
