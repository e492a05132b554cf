"""Sweeps as a user runs them: jobs run once, failures are reported, with every launcher."""

import itertools
import json
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rdm.app.open_model import load
from rdm.app.run_folder import RunFolder
from rdm.app.sweeps import job_id
from tests.scripts import script
from tests.test_end_to_end import SMALL, rows

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
