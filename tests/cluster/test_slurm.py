"""Sweeps and jobs in a SLURM queue: interrupted in every way SLURM has, resumed, and equal to the bit."""

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdm.app.run_folder import RunFolder
from tests.chaos import TINY
from tests.cluster.processes import wait_until
from tests.cluster.slurm import Command, Queue
from tests.cluster.torchrun import CPU, SLOW, STEPS
from tests.same import assert_same_run
from tests.scripts import ROOT

pytestmark = pytest.mark.cluster
SLURM = ["hydra/launcher=slurm", "hydra.launcher.gpus_per_node=null", "hydra.launcher.cpus_per_task=1"]
SLURM += ["hydra.launcher.mem_gb=1"]
JOB = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --time=24:00:00 --job-name=train
#SBATCH --signal=SIGUSR1@120 --requeue --open-mode=append
srun {train} resume=auto
code=$?
[ $code -eq 138 ] && scontrol requeue $SLURM_JOB_ID
exit $code
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slurm")


def start_sweep(queue: Queue, script: str, folder: Path, *overrides: str) -> Command:
    """Start a sweep with ``hydra/launcher=slurm`` in ``folder``."""
    common = [*TINY[:-1], *STEPS, f"data.cache={folder.parent / 'cache'}"] if script == "train.py" else []
    return queue.start(script, "-m", *SLURM, *common, f"hydra.sweep.dir={folder}", *overrides, log=folder)


def runs_of(folder: Path) -> dict[str, Path]:
    """The run folders of a sweep by the last override."""
    return {RunFolder(file.parent).overrides[-1]: file.parent for file in folder.glob("*/config.yaml")}


def array_of(queue: Queue, folder: Path, size: int) -> list[str]:
    """The ids of the jobs of a sweep, in order, once they run."""
    logs = ".submitit/[0-9]*_*"
    wait_until(lambda: len(list(folder.glob(logs))) == size, f"{size} jobs of {folder.name} are submitted")
    jobs = sorted((path.name for path in folder.glob(logs)), key=lambda name: int(name.split("_")[1]))
    for job in jobs:
        queue.wait_for(job, "RUNNING", "COMPLETED")
    return jobs


@pytest.fixture(scope="module")
def sweep(queue: Queue, folder: Path, counts: Counter[str]) -> tuple[Path, str]:
    """An uninterrupted sweep of two seeds, and what the command printed."""
    command = start_sweep(queue, "train.py", folder / "sweep", "seed=1,2")
    printed = command.finish(0)
    counts["jobs"] += 2
    return folder / "sweep", printed


def test_sweep_equals_runs_without_a_queue(queue: Queue, sweep: tuple[Path, str], counts: Counter[str]) -> None:
    """The command waits for its jobs and prints the table; a run equals the same run without a queue."""
    folder, printed = sweep
    assert "seed=1" in printed
    assert f"done: python evaluate.py ckpt={folder}" in printed
    assert set(runs_of(folder)) == {"seed=1", "seed=2"}
    plain = folder.with_name("plain")
    cache = f"data.cache={folder.parent / 'cache'}"
    queue.start("train.py", *TINY, *STEPS, cache, f"hydra.run.dir={plain}", log=plain).finish(0)
    assert_same_run(plain, runs_of(folder)["seed=1"])


def test_job_array_of_evaluations(queue: Queue, sweep: tuple[Path, str], counts: Counter[str]) -> None:
    """Each job appends its row to the results of its run; a job that fails is named, and the others are done."""
    run = runs_of(sweep[0])["seed=1"]
    command = start_sweep(
        queue, "evaluate.py", sweep[0].with_name("evaluations"), f"ckpt={run}", "limit=4", "decoding.steps=1,2,3,99"
    )
    printed = command.finish(1)
    counts["jobs"] += 4
    rows = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert sorted(row["steps"] for row in rows) == [1, 2, 3]
    assert "1 of 4 jobs failed:" in printed
    assert "decoding.steps=99 exceeds diffusion.num_steps=50" in printed


def test_two_sweeps_at_once(queue: Queue, folder: Path, sweep: tuple[Path, str], counts: Counter[str]) -> None:
    """They share the prepared data; a job of one fails, and the command says which and why, and exits with 1."""
    first = start_sweep(queue, "train.py", folder / "first", "callbacks.checkpoint.keep=5,6")
    second = start_sweep(queue, "train.py", folder / "second", "trainer.max_steps=4", "model.heads=2,3")
    failed, printed = second.finish(1), first.finish(0)
    counts["jobs"] += 4
    assert "1 of 2 jobs failed:" in failed
    assert "model.heads=3: " in failed
    assert "Traceback" not in failed + printed
    assert RunFolder(runs_of(folder / "second")["model.heads=2"]).finished
    for run in runs_of(folder / "first").values():
        assert_same_run(runs_of(sweep[0])["seed=1"], run)


def test_sweep_of_runs_on_two_nodes(queue: Queue, folder: Path, uninterrupted: Path, counts: Counter[str]) -> None:
    """A job with a task on each node; it is recorded once, and equals the run of torchrun."""
    tasks = ["hydra.launcher.nodes=2", "trainer=ddp", *CPU, "trainer.num_nodes=2", "trainer.devices=1"]
    printed = start_sweep(queue, "train.py", folder / "nodes", *tasks, "seed=1").finish(0)
    counts["jobs"] += 1
    assert len((folder / "nodes" / "jobs.jsonl").read_text().splitlines()) == 1, printed
    (run,) = runs_of(folder / "nodes").values()
    assert_same_run(uninterrupted, run)


@pytest.fixture
def drained(queue: Queue) -> Iterator[None]:
    """Resume all nodes at the end."""
    yield
    for node, state in queue.node_states().items():
        if state.startswith(("drain", "down")):
            queue.run("scontrol", "update", f"nodename={node}", "state=resume")
    wait_until(lambda: set(queue.node_states().values()) <= {"idle", "mixed", "allocated"}, "all nodes are back")


def test_interrupted_jobs(
    queue: Queue, folder: Path, sweep: tuple[Path, str], counts: Counter[str], drained: None
) -> None:
    """Requeued, signalled before the time limit, cancelled, on a drained node and on one that fails."""
    overrides = [*SLOW, "callbacks.checkpoint.keep=5,6,7,8"]
    command = start_sweep(queue, "train.py", folder / "interrupted", *overrides)
    requeued, signalled, cancelled, undisturbed = jobs = array_of(queue, folder / "interrupted", 4)
    saved = folder / "interrupted"
    wait_until(lambda: len(list(saved.glob("*/checkpoints/step_0000020.ckpt"))) == 4, "all jobs have saved step 20")
    node = queue.show(requeued)["NodeList"]
    queue.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    queue.run("scontrol", "requeue", requeued)
    queue.run("scancel", "--signal=USR2", signalled)  # what SLURM sends before the time limit of jobs of submitit
    queue.run("scancel", cancelled)
    counts.update({"requeued": 1, "signalled before the time limit": 1, "cancelled": 1, "drained nodes": 1})
    queue.wait_for(cancelled, "CANCELLED")
    queue.wait_for(requeued, "RUNNING")
    other = queue.show(requeued)["NodeList"]
    assert other != node, "a drained node gets no new jobs"
    wait_until(lambda: "resuming from" in train_log(saved, 0), f"{requeued} resumes")
    queue.run("scontrol", "update", f"nodename={node}", "state=resume")
    queue.run("scontrol", "update", f"nodename={other}", "state=down", "reason=test")  # its jobs are queued again
    counts["failed nodes"] += 1
    printed = command.finish(1)
    counts["jobs"] += 4
    assert "1 of 4 jobs failed:" in printed
    assert f"callbacks.checkpoint.keep=7: SLURM job {cancelled}: no result (CANCELLED" in printed
    assert "Traceback" not in printed
    restarts = [int(queue.show(job)["Restarts"]) for job in jobs]
    assert (restarts[0], restarts[2], restarts[3]) == (2, 0, 0), restarts
    assert restarts[1] in (1, 2), restarts  # the node that failed may have been its second one
    assert queue.show(undisturbed)["JobState"] == "COMPLETED"  # a drained node finishes its jobs
    assert train_log(saved, 1).count("SIGUSR2: saved at step") == 1
    again = start_sweep(queue, "train.py", folder / "interrupted", *overrides).finish(0)
    counts["jobs"] += 4
    assert "failed" not in again
    assert len(jobs) == len(runs_of(saved)) == 4
    for run in runs_of(saved).values():
        assert_same_run(runs_of(sweep[0])["seed=1"], run)
        counts["bit-equal results"] += 1


def train_log(folder: Path, number: int) -> str:
    """The log of a job of a sweep, by its number."""
    file = runs_of(folder).get(f"callbacks.checkpoint.keep={number + 5}", folder) / "train.log"
    return file.read_text() if file.exists() else ""


def test_time_limit_of_a_job_script(queue: Queue, folder: Path, uninterrupted: Path, counts: Counter[str]) -> None:
    """The script of docs/tutorials/cluster.md on two nodes: stopped by SIGUSR1, queued again, and resumed."""
    run, log = folder / "script", folder / "script.out"
    slow = [SLOW[0], "+callbacks.slow.seconds=0.9"]
    train = [
        sys.executable,
        "train.py",
        *TINY[:-1],
        *STEPS,
        *slow,
        "trainer=ddp",
        *CPU,
        "trainer.num_nodes=2",
        "trainer.devices=1",
    ]
    train += [f"hydra.run.dir={run}", f"data.cache={folder / 'cache'}"]
    (folder / "job.sh").write_text(JOB.format(train=" ".join(train)))
    options = ["--parsable", f"--output={log}", f"--chdir={ROOT}"]
    job = queue.run("sbatch", *options, str(folder / "job.sh")).strip()
    start = time.monotonic()
    # Counted from the start of training: how long Python takes to start on a busy machine is not what is tested.
    step_20 = run / "checkpoints" / "step_0000020.ckpt"
    wait_until(lambda: step_20.exists() or ended(queue, job), "step 20 is saved")
    queue.run("scontrol", "update", f"jobid={job}", f"timelimit={time_limit(queue, job, 90)}")
    wait_until(lambda: queue.show(job)["Restarts"] == "1" or ended(queue, job), "the job is queued again")
    queue.run("scontrol", "update", f"jobid={job}", "timelimit=24:00:00")
    wait_until(lambda: ended(queue, job), "the job has ended")
    printed = log.read_text()
    assert queue.show(job)["JobState"] == "COMPLETED", printed
    print(f"queued again once, {time.monotonic() - start:.0f} s")
    assert queue.show(job)["Restarts"] == "1"
    assert printed.count("SIGUSR1: saved at step") == 1
    counts.update({"jobs": 1, "stopped by the time limit": 1})
    assert_same_run(uninterrupted, run)
    counts["bit-equal results"] += 1


def ended(queue: Queue, job: str) -> bool:
    return queue.show(job)["JobState"] in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")


def time_limit(queue: Queue, job: str, seconds: int) -> int:
    """The least time limit, in minutes, that leaves a running job at least ``seconds`` seconds."""
    hours, minutes, rest = map(int, queue.show(job)["RunTime"].split(":"))
    return math.ceil((3600 * hours + 60 * minutes + rest + seconds) / 60)
