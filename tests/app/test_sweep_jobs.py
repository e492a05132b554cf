"""Jobs of a sweep: names, folders, the journal and failures."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from rdm.app import scripts, sweeps
from rdm.app.arguments import expand_runs, quote_paths
from rdm.app.sweeps import JobResult, Journal, finish_sweep, job_folder, job_id


def test_job_id_depends_on_overrides_in_any_order() -> None:
    assert job_id(["a=1", "b=2", "debug=true", "resume=auto"]) == job_id(["b=2", "a=1"])
    assert job_id(["a=1"]) != job_id(["a=2"])


def test_names_of_job_folders(tmp_path: Path) -> None:
    def name(*overrides: str) -> str:
        return job_folder(str(tmp_path), "ar", overrides)

    assert name("seed=1", "reweighting=original", "resume=auto") == "reweighting=original,seed=1"
    assert name("experiment=toy/absorbing", "optimizer.lr=1e-4") == "experiment=toy~absorbing,optimizer.lr=1e-4"
    betas = name("optimizer.betas=[0.9,0.98]")
    assert betas == f"optimizer.betas=_0.9,0.98__{job_id(['optimizer.betas=[0.9,0.98]'])}"
    assert len({name("data.root=a/b"), name("data.root=a~b"), name("data.root=a-b"), name("data.root=a b")}) == 4
    long = f"data.root={'a' * 200}"
    assert name(long) == f"ar_{job_id([long])}"
    (tmp_path / f"ar_{job_id(['seed=1'])}").mkdir()  # of an earlier version
    assert name("seed=1") == f"ar_{job_id(['seed=1'])}"


def test_existing_paths_are_quoted(tmp_path: Path) -> None:
    run = tmp_path / "reweighting=original,seed=1"
    run.mkdir()
    assert quote_paths([f"ckpt={run}", "seed=1,2", "ckpt=rdm"]) == [f"ckpt='{run}'", "seed=1,2", "ckpt=rdm"]
    assert quote_paths([f"text={'a, ' * 2000}/"]) == [f"text={'a, ' * 2000}/"]


def test_ckpt_expands_to_the_runs_of_a_folder(tmp_path: Path) -> None:
    for name in ("a", "it's b", "c"):
        (tmp_path / "sweep" / name).mkdir(parents=True)
    for name in ("a", "it's b"):
        (tmp_path / "sweep" / name / "config.yaml").touch()
    folder = tmp_path / "sweep"
    both = [rf"ckpt='{folder}/a','{folder}/it\'s b'", "hydra.mode=MULTIRUN"]
    assert expand_runs([f"ckpt={folder}", "seed=1"]) == [*both, "seed=1"]
    assert expand_runs([f"ckpt={folder}/*"]) == both
    assert expand_runs([f"ckpt={tmp_path}/s*"]) == both
    assert expand_runs([f"ckpt={folder}/it*"]) == [rf"ckpt='{folder}/it\'s b'"]
    for unchanged in (f"ckpt={folder}/a", f"ckpt={folder}/nothing", f"ckpt={folder}/a,{folder}/b", f"x={folder}"):
        assert expand_runs([unchanged]) == [unchanged]


def end_job(journal: Journal, folder: Path, number: int, result: JobResult) -> None:
    """Let a job of the sweep end."""
    config = OmegaConf.create({"hydra": {"job": {"num": number}}})
    returned: Any = SimpleNamespace(overrides=["a=1", f"b={number}"], _return_value=result)
    journal.folder = folder
    journal.on_job_end(config, returned)


def test_two_sweeps_in_one_folder_are_reported_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each reports its own jobs only."""
    monkeypatch.setattr(sweeps, "sweeping", lambda: True)
    first, second = Journal("train"), Journal("train")
    end_job(first, tmp_path, 1, JobResult(failure="reason"))
    end_job(second, tmp_path, 0, JobResult(2.0))
    end_job(first, tmp_path, 0, JobResult(1.0))
    assert [job["value"] for job in second.jobs()] == [2.0]
    monkeypatch.setattr(Journal, "started", second)
    assert finish_sweep()
    monkeypatch.setattr(Journal, "started", first)
    assert not finish_sweep()
    assert capsys.readouterr().err == "1 of 2 jobs failed:\n  b=1: reason\n"


def test_a_bug_in_a_job_shows_its_stack_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scripts, "sweeping", lambda: True)
    monkeypatch.setattr(scripts, "remove_unused_folder", lambda: None)
    overrides: list[str] = []
    monkeypatch.setattr(scripts.HydraConfig, "get", lambda: SimpleNamespace(overrides=SimpleNamespace(task=overrides)))

    @scripts.guarded
    def job(config: DictConfig) -> None:
        raise ValueError("boom")

    result = job(OmegaConf.create())
    assert isinstance(result, JobResult)
    assert result.failure == "ValueError: boom"
    assert "Traceback" in capsys.readouterr().err
    overrides.append("debug=true")
    with pytest.raises(ValueError, match="boom"):
        job(OmegaConf.create())


def test_a_lost_slurm_job_is_a_failed_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that was cancelled there is no result; the sweep names it, and waits for the others."""
    from submitit.core.utils import DelayedSubmission, UncompletedJobError
    from submitit.slurm.slurm import SlurmJob

    from rdm.app.slurm import report_lost_jobs

    def cancelled(job: SlurmJob) -> list[Any]:
        raise UncompletedJobError("no output")

    for name, value in (("results", cancelled), ("state", "CANCELLED by 0"), ("watcher", SlurmJob.watcher)):
        monkeypatch.setattr(SlurmJob, name, value)
    journal = Journal("train")
    journal.folder = tmp_path
    report_lost_jobs(journal)
    job = SlurmJob[Any](tmp_path / "%j", "4_2", tasks=[0])
    job.paths.folder.mkdir()
    DelayedSubmission(print, ["seed=3"], "hydra.sweep.dir", 2, "id", {}).dump(job.paths.submitted_pickle)
    for _ in range(2):  # recorded once
        (returned,) = job.results()
        assert returned.return_value.failure.startswith("SLURM job 4_2: no result (CANCELLED by 0); log: ")
    assert len((tmp_path / "jobs.jsonl").read_text().splitlines()) == 1
    journal.record(2, ["seed=3"], JobResult(0.5))  # SLURM has queued it again
    (line,) = journal.jobs()
    assert (line["job"], line["overrides"], line["value"], line["failure"]) == (2, ["seed=3"], 0.5, None)
