"""Sweeps: the files compose, jobs run once, failures are reported, with every launcher."""

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from rdm.app import scripts, sweeps
from rdm.app.arguments import expand_runs, quote_paths
from rdm.app.open_model import load
from rdm.app.run_folder import RunFolder
from rdm.app.schema import check_types
from rdm.app.sweeps import JobResult, Journal, finish_sweep, job_folder, job_id
from tests.scripts import script
from tests.test_end_to_end import SMALL, rows

CONF = Path(__file__).parents[2] / "conf"
SWEEPS = sorted(file.stem for file in (CONF / "sweep").glob("[!_]*.yaml"))
TASKS = {  # of the paper
    "table1": ("iwslt14", "wmt14", "wmt16"),
    "training_decoding": ("iwslt14", "wmt14", "wmt16"),
    "reweighting": ("iwslt14",),
    "conditioned": ("iwslt14",),
    "speed": ("qqp",),
    "decoding_time": ("wmt14",),
    "sample_sizes": ("qg", "qqp"),
    "question_baselines": ("qg", "qqp"),
    "open_ended": ("wikitext103",),
}


def composed(script_name: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(script_name, list(overrides), return_hydra_config=True)


def values(script_name: str, *overrides: str) -> dict[str, list[str]]:
    """What a sweep file sweeps over, by key."""
    params = composed(script_name, *overrides).hydra.sweeper.params.items()
    (jobs,) = BasicSweeper.split_arguments(
        OverridesParser.create().parse_overrides([f"{key}={value}" for key, value in params]), None
    )
    keys = [override.partition("=")[0] for override in jobs[0]] if jobs else []
    return {key: list(dict.fromkeys(job[place] for job in jobs)) for place, key in enumerate(keys)}


@pytest.mark.parametrize("name", SWEEPS)
def test_every_job_composes(name: str) -> None:
    """All runs to be trained, and every value that is evaluated."""
    training = values("train", f"sweep={name}")
    for job in itertools.product(*training.values()) if training else ():
        config = composed("train", f"sweep={name}", *job)
        assert config.sweep.folder.startswith(name)
        assert config.hydra.mode.name == "MULTIRUN"
        config.run_dir, config.hydra = "unused", {}
        check_types(config)
    evaluation = values("evaluate", f"sweep={name}")
    assert next(iter(evaluation)) == "ckpt"  # all jobs of a checkpoint follow each other
    for place in range(max(map(len, evaluation.values()))):
        job = [choices[place % len(choices)] for choices in evaluation.values()]
        config = composed("evaluate", f"sweep={name}", *job)
        if "_target_" in config.decoding and config.decoding.name != "vanilla":  # which asks the run what it is
            check_types(config.decoding, "decoding")


@pytest.mark.slow
def test_sweeps_on_the_data_of_the_paper() -> None:
    """One word changes the data; the experiments it then names exist."""
    assert set(TASKS) == {name for name in SWEEPS if values("train", f"sweep={name}")}
    for name, tasks in TASKS.items():
        for task in tasks:
            for experiment in values("train", f"sweep={name}", f"sweep.task={task}")["experiment"]:
                assert (CONF / "experiment" / f"{experiment.removeprefix('experiment=')}.yaml").is_file()


def test_the_grids_of_the_paper() -> None:
    assert values("evaluate", "sweep=table1")["decoding.steps"] == [f"decoding.steps={n}" for n in (2, 4, 10, 16, 25)]
    time = values("evaluate", "sweep=decoding_time")
    assert time["decoding.steps"] == [f"decoding.steps={n}" for n in (2, 4, 10, 16)]
    assert time["batch_size"] == ["batch_size=50"]
    assert len(time["seed"]) == 10
    assert values("evaluate", "sweep=sample_sizes")["decoding.samples"] == ["decoding.samples=1", "decoding.samples=10"]
    assert values("evaluate", "sweep=open_ended")["decoding.steps"] == [f"decoding.steps={n}" for n in (16, 64, 100)]


def test_slurm_composes() -> None:
    launcher = composed("train", "hydra/launcher=slurm", "hydra.launcher.partition=gpu").hydra.launcher
    assert (launcher._target_.rpartition(".")[2], launcher.partition, launcher.timeout_min) == (
        "SlurmLauncher",
        "gpu",
        2880,
    )


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


# The scripts, as a user runs them.

TRAIN = ["sweep=reweighting", *SMALL, "reweighting=linear,constant", "seed=1,-1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder of two runs, and what was printed about the two jobs that failed."""
    folder = tmp_path_factory.mktemp("sweep") / "runs"
    done = script("train.py", *TRAIN, f"hydra.sweep.dir={folder}", code=1)
    return folder, done.stderr


def runs(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/finished"))


def test_failed_jobs_are_listed_and_the_others_run(trained: tuple[Path, str]) -> None:
    folder, printed = trained
    assert len(runs(folder)) == 2
    assert printed.splitlines()[-3:] == [
        "2 of 4 jobs failed:",
        "  reweighting=linear seed=-1: seed must lie between 0 and 4294967295, got -1",
        "  reweighting=constant seed=-1: seed must lie between 0 and 4294967295, got -1",
    ]
    assert "Traceback" not in printed


def test_a_repeated_training_runs_what_is_missing(trained: tuple[Path, str], tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(trained[0], folder)
    kept, lost = runs(folder)
    shutil.rmtree(lost)
    before = (kept / "checkpoints" / "last.ckpt").stat().st_mtime_ns
    done = script("train.py", *reversed(TRAIN), f"hydra.sweep.dir={folder}", code=1)
    assert done.stdout.count("already finished") == 1
    assert runs(folder) == [kept, lost]
    assert (kept / "checkpoints" / "last.ckpt").stat().st_mtime_ns == before


def test_readable_folders_are_found_again_and_so_are_those_of_earlier_versions(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    command = ["train.py", "-m", "experiment=toy/absorbing", "reweighting=original,linear", "model.dim=32"]
    command += [
        "trainer.max_steps=1",
        "data.corpus.train_size=99",
        "callbacks.sampling=null",
        "callbacks.progress=null",
    ]
    script(*command, f"hydra.sweep.dir={sweep}")
    names = [run.name for run in runs(sweep)]
    shared = "callbacks.progress=null,callbacks.sampling=null,data.corpus.train_size=99"
    shared += ",experiment=toy~absorbing,model.dim=32"
    assert names == [f"{shared},reweighting={choice},trainer.max_steps=1" for choice in ("linear", "original")]
    run = runs(sweep)[0]
    evaluated = script("evaluate.py", f"ckpt={run}", "limit=2", "decoding.steps=2").stdout
    assert str(run / "hypotheses") in evaluated
    script("generate.py", f"ckpt={run}", "decoding.steps=2")
    former = sweep / f"absorbing_{job_id(RunFolder(run).overrides)}"
    run.rename(former)
    again = script(*command, f"hydra.sweep.dir={sweep}")
    assert again.stdout.count("already finished") == 2
    assert former in runs(sweep)
    assert len(runs(sweep)) == 2


def test_a_sweep_of_evaluations(trained: tuple[Path, str], tmp_path: Path) -> None:
    """Every run of the folder is evaluated once; the table names what differs."""
    folder = tmp_path / "runs"
    shutil.copytree(trained[0], folder)
    command = ["evaluate.py", "sweep=reweighting", f"ckpt={folder}", f"hydra.sweep.dir={tmp_path / 'evaluate'}"]
    first = script(*command, "decoding.steps=2").stdout
    for line in ("rdm_absorbing, reweighting linear", "rdm_absorbing, reweighting constant"):
        assert line in first
    again = script(*command, "decoding.steps=2,3").stdout
    assert again.count("already") == 4
    results = [row for run in runs(folder) for row in rows(run)]
    jobs = sorted((row["choices"]["reweighting"], row["strategy"], row["steps"]) for row in results)
    assert jobs == sorted(itertools.product(("constant", "linear"), ("rdm", "vanilla"), (2, 3)))
    assert len({row["evaluation"] for row in results}) == 8
    script(*command, "decoding.steps=2", "decoding=rdm", "redo=true")
    assert sum(len(rows(run)) for run in runs(folder)) == 10


@pytest.mark.slow
def test_parallel_jobs_lose_no_row(trained: tuple[Path, str], tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    done = script(
        *("evaluate.py", "sweep=iterations", f"ckpt={runs(trained[0])[0]}", "decoding.steps=2,51", "limit=2"),
        *(f"results={results}", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"hydra.sweep.dir={tmp_path}"),
        code=1,
    )
    found = sorted((row["strategy"], row["steps"]) for row in rows(tmp_path))
    assert found == [("rdm", 2), ("vanilla", 2)]
    assert "2 iterations" in done.stdout
    assert "2 of 4 jobs failed" in done.stderr


@pytest.mark.slow
def test_submitit_launcher(trained: tuple[Path, str], tmp_path: Path) -> None:
    done = script(
        *("evaluate.py", "-m", f"ckpt={runs(trained[0])[0]}", "decoding.steps=2,51", "limit=2"),
        *(f"results={tmp_path / 'results.jsonl'}", "hydra/launcher=submitit_local", f"hydra.sweep.dir={tmp_path}"),
        code=1,
    )
    assert [row["steps"] for row in rows(tmp_path)] == [2]
    assert "2 iterations" in done.stdout
    assert "1 of 2 jobs failed:\n  decoding.steps=51: decoding.steps=51 exceeds" in done.stderr


def test_optuna_finds_the_best_trial(trained: tuple[Path, str], tmp_path: Path) -> None:
    done = script(
        *("evaluate.py", "sweep=tune_decoding", f"ckpt={runs(trained[0])[0]}", f"results={tmp_path / 'results.jsonl'}"),
        *("decoding=rdm", "schedule=linear", "decoding.temperature=0.0", "decoding.length_candidates=1,7,1000"),
        *("hydra.sweeper.n_trials=8", f"hydra.sweep.dir={tmp_path}", "decoding.steps=2"),
        code=1,  # a thousand candidates fail
    )
    assert "decoding.length_candidates=1000, but there are only" in done.stderr
    assert "Traceback" not in done.stderr
    bleu = {row["decoding"]["length_candidates"]: row["metrics"]["sacrebleu"]["value"] for row in rows(tmp_path)}
    assert sorted(bleu) == [1, 7]
    assert len(rows(tmp_path)) == 2  # a trial that was made before is not decoded again
    assert {row["split"] for row in rows(tmp_path)} == {"valid"}
    best = OmegaConf.load(tmp_path / "optimization_results.yaml")
    assert best.best_value == max(bleu.values())
    assert bleu[best.best_params["decoding.length_candidates"]] == max(bleu.values())
    assert "best_value" in done.stdout


def test_optuna_without_a_successful_trial(trained: tuple[Path, str], tmp_path: Path) -> None:
    done = script(
        *("evaluate.py", "sweep=tune_decoding", f"ckpt={runs(trained[0])[0]}", f"results={tmp_path / 'results.jsonl'}"),
        *("hydra.sweeper.n_trials=2", f"hydra.sweep.dir={tmp_path}", "decoding.steps=51"),
        code=1,
    )
    assert done.stderr.splitlines()[-4] == "2 of 2 jobs failed:"
    assert done.stderr.splitlines()[-1] == "the sweep ended early: ValueError: No trials are completed yet."


OPTUNA = ["train.py", "-m", "hydra/sweeper=optuna", "optimizer.lr=0.1,0.2"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([*OPTUNA, "trainer=ddp_cpu"], "Optuna cannot tune"),
        ([*OPTUNA, "trainer.num_nodes=2"], "Optuna cannot tune"),
        (["train.py", "sweep=iterations"], "sweep=iterations has nothing for train.py"),
        (["evaluate.py", "sweep=nothing"], "Could not find 'sweep/nothing'"),
    ],
)
def test_impossible_sweeps_are_refused(command: list[str], message: str, tmp_path: Path) -> None:
    done = script(*command, f"hydra.sweep.dir={tmp_path / 'sweep'}", code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "sweep").exists()


def test_a_checkpoint_is_loaded_once(trained: tuple[Path, str], tmp_path: Path) -> None:
    """A sweep over decoding options loads its model once, until the file changes."""
    run = tmp_path / "run"
    shutil.copytree(runs(trained[0])[0], run)
    first, second = (load(str(run), device="cpu") for _ in range(2))
    assert first.system is second.system
    assert first.data() is second.data()
    (file,) = first.run.checkpoints()
    file.write_bytes(file.read_bytes())
    assert load(str(run), device="cpu").system is not first.system
    other = load(str(runs(trained[0])[1]), device="cpu")
    assert other.data() is not first.data()


def test_journal_is_readable(trained: tuple[Path, str]) -> None:
    lines = [json.loads(line) for line in (trained[0] / "jobs.jsonl").read_text().splitlines()]
    assert [line["failure"] is None for line in lines] == [True, False, True, False]


def test_failed_decodings_are_listed_and_the_others_shown_on_a_page(trained: tuple[Path, str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    sweep = ["trace=true", "decoding.steps=2,1000", f"page={page}", f"hydra.sweep.dir={tmp_path / 'jobs'}"]
    failed = script("generate.py", "-m", f"ckpt={runs(trained[0])[0]}", *sweep, code=1)
    assert "1 of 2 jobs failed" in failed.stderr
    assert "decoding.steps=1000" in failed.stderr
    assert page.is_file()


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
