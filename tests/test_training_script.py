"""Continuation with other settings, the end of a run, fine-tuning, best checkpoints and logging, through train.py."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdm.training.checkpoints import load_archive
from tests.scripts import ROOT, script

SMALL = [
    "data.corpus.train_size=200",
    "data.corpus.valid_size=8",
    "data.corpus.test_size=8",
    "data.max_tokens=1000",
    "model.dim=16",
    "model.hidden=16",
    "decoding.steps=2",
    "trainer.log_every_n_steps=1",
]
TEXT = ["data.corpus.train_size=200", "data.corpus.valid_size=20", "data.corpus.test_size=20"]


def train(folder: Path, *overrides: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    return script("train.py", f"hydra.run.dir={folder}", *overrides, code=code)


def rows(folder: Path, column: str) -> list[float]:
    """The logged values of a column."""
    with (folder / "metrics.csv").open(newline="") as stream:
        return [float(row[column]) for row in csv.DictReader(stream) if row.get(column)]


def checkpoints(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 5 steps, fewer than the validation interval."""
    folder = tmp_path_factory.mktemp("runs") / "short"
    done = train(folder, *SMALL, "trainer.max_steps=5", "optimizer=inverse_sqrt", "best=val/loss")
    (folder / "stdout").write_text(done.stdout)
    (folder / "stderr").write_text(done.stderr)
    return folder


@pytest.fixture(scope="module")
def autoregressive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "ar"
    train(folder, *SMALL[:-2], "system=ar", "trainer.max_steps=2", "logger=null")
    return folder


def test_fused_cross_entropy(short: Path, tmp_path: Path) -> None:
    """It changes how the loss is computed, not its value; models whose loss has no logits do not have it."""
    overrides = ["trainer.max_steps=5", "optimizer=inverse_sqrt", "best=val/loss", "model.fused_cross_entropy=true"]
    train(tmp_path / "fused", *SMALL, *overrides)
    for column in ("train/loss", "val/loss"):
        assert rows(tmp_path / "fused", column) == pytest.approx(rows(short, column), rel=1e-5)
    refused = train(tmp_path / "none", "system=diffuseq", "model.fused_cross_entropy=true", code=2).stderr
    assert refused.startswith("error: ")
    assert "fused_cross_entropy" in refused
    assert len(refused.splitlines()) == 1


# Continuation.


def test_continue_with_other_settings(short: Path, tmp_path: Path) -> None:
    """Each takes effect from the first step on, is printed, and is what the run folder records."""
    changed = ["optimizer.lr=1e-2", "optimizer.betas=[0.5,0.6]", "optimizer.weight_decay=0.5", "optimizer.eps=1e-5"]
    changed += ["data.max_tokens=500", "model.dropout=0.25", "callbacks.ema.decay=0.5"]
    done = train(tmp_path / "run", f"ckpt={short}", *changed, "trainer.max_steps=7")
    rates = rows(tmp_path / "run", "train/lr")
    assert rates == pytest.approx(
        [5e-4 * step / 10000 for step in range(1, 6)] + [1e-2 * step / 10000 for step in (6, 7)]
    )
    assert "changed: optimizer.lr=0.01 (before: 0.0005)\n" in done.stdout
    assert done.stdout.count("changed: ") == len(changed) + 1
    tokens = rows(tmp_path / "run", "train/target_tokens")
    assert max(tokens[5:]) <= 500 < max(tokens[:5])
    state = load_archive(tmp_path / "run" / "checkpoints" / "last.ckpt")
    (group,) = state["optimizer_states"][0]["param_groups"]
    assert (group["betas"], group["weight_decay"], group["eps"]) == ((0.5, 0.6), 0.5, 1e-5)
    assert state["hyper_parameters"]["optimizer"]["lr"] == 1e-2
    record = json.loads((tmp_path / "run" / "versions.json").read_text())
    assert [each for each in record["overrides"] if each.startswith("optimizer.lr")] == ["optimizer.lr=1e-2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("trainer.accumulate_grad_batches=2", "trainer.accumulate_grad_batches=2 cannot be changed from 1 when a run"),
        ("init=outputs", "ckpt continues a run, init starts a new one from its weights: leave one out"),
    ],
)
def test_refused_changes(change: str, message: str, short: Path, tmp_path: Path) -> None:
    refused = train(tmp_path / "run", f"ckpt={short}", change, "trainer.max_steps=7", code=2).stderr
    (line,) = refused.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not (tmp_path / "run").exists()


# The end of a run.


def test_a_run_shorter_than_its_intervals(short: Path) -> None:
    assert len(rows(short, "val/loss")) == len(rows(short, "val/bleu")) == 1
    assert checkpoints(short) == ["best.ckpt", "last.ckpt", "step_0000005.ckpt"]
    assert (short / "stderr").read_text() == (
        "warning: trainer.val_check_interval=480 exceeds trainer.max_steps=5: validated at the end only\n"
    )


# Fine-tuning.


def test_init_starts_a_new_run_from_the_weights(short: Path, tmp_path: Path) -> None:
    """On other data, with another objective and dropout; resumed without the first run."""
    overrides = [*SMALL, "data=toy_paraphrase", "reweighting=original", "model.dropout=0.1", "trainer.max_steps=2"]
    overrides += [f"init={short}", "optimizer.lr=1e-7", "resume=auto", "trainer.val_check_interval=2"]
    done = train(tmp_path / "run", *overrides)
    assert f"from {short}/checkpoints/step_0000005.ckpt" in done.stdout
    assert "newly initialised" not in done.stdout
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (short / "tokenizer.json").read_bytes()
    first, second = (load_archive(folder / "checkpoints" / "last.ckpt") for folder in (short, tmp_path / "run"))
    assert second["global_step"] == 2
    for name, value in first["state_dict"].items():
        if "denoiser" in name and value.is_floating_point():
            assert (value - second["state_dict"][name]).abs().max() < 1e-5, name
    hidden = short.rename(short.with_name("hidden"))
    try:
        again = train(tmp_path / "run", *overrides, "trainer.max_steps=3")
    finally:
        hidden.rename(short)
    assert "resuming from" in again.stdout
    assert "tensors taken" not in again.stdout


def test_init_of_another_kind_of_system_and_several_loggers(autoregressive: Path, tmp_path: Path) -> None:
    loggers = "logger=[csv,tensorboard]"
    done = train(tmp_path / "run", *SMALL, f"init={autoregressive}", "trainer.max_steps=1", loggers)
    line = next(line for line in done.stdout.splitlines() if line.startswith("init: "))
    taken, total = (int(line.split()[index]) for index in (1, 3))
    assert 10 < taken < total
    assert "  newly initialised, not in that run: denoiser." in done.stdout
    assert rows(tmp_path / "run", "train/loss")
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.*"))


def test_init_of_a_language_model(tmp_path: Path) -> None:
    train(tmp_path / "ar_lm", *TEXT, "system=ar_lm", "trainer.max_steps=1", "callbacks.sampling=null")
    assert rows(tmp_path / "ar_lm", "val/perplexity")
    done = train(
        tmp_path / "lm", *TEXT, "system=lm", f"init={tmp_path / 'ar_lm'}", "trainer.max_steps=1", "decoding.steps=2",
        "callbacks.sampling.sentences=1", "callbacks.sampling.shown=1",
    )  # fmt: skip
    assert "tensors taken" in done.stdout
    assert "val/nats_per_token and val/perplexity: bound, estimated with one draw per sentence" in done.stdout


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["init=missing"], "error: init: missing does not exist"),
        (["init=RUN", "system=diffuseq"], "no tensor of"),
        (["init=RUN", "data/tokenizer=bpe"], "has no effect with init, which takes the run's tokenizer"),
    ],
)
def test_refused_init(overrides: list[str], message: str, short: Path, tmp_path: Path) -> None:
    given = [each.replace("RUN", str(short)) for each in overrides]
    small = [each for each in SMALL if "diffuseq" not in str(overrides) or not each.startswith(("model", "decoding"))]
    assert message in train(tmp_path / "run", *small, *given, code=2).stderr


# Best checkpoint.


def test_best_checkpoint_and_early_stopping(tmp_path: Path) -> None:
    """A learning rate of nearly zero does not improve BLEU: the first validation is the best one."""
    overrides = [*SMALL, "trainer.max_steps=50", "trainer.val_check_interval=2", "optimizer.lr=1e-12"]
    overrides += ["best=val/bleu", "patience=2"]
    done = train(tmp_path / "run", *overrides)
    assert "stopped early: val/bleu was best at" in done.stdout
    assert load_archive(tmp_path / "run" / "checkpoints" / "best.ckpt")["global_step"] == 2
    assert load_archive(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 6
    assert len(rows(tmp_path / "run", "val/bleu")) == 3
    before = (tmp_path / "run" / "metrics.csv").read_bytes()
    train(tmp_path / "run", *overrides, "resume=auto")  # the best value survives: nothing is left to do
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before
    script("evaluate.py", f"ckpt={tmp_path / 'run'}", "best=true", "limit=2")
    row = json.loads((tmp_path / "run" / "results.jsonl").read_text())
    assert row["checkpoint_step"] == 2
    refused = script("generate.py", f"ckpt={tmp_path / 'run'}", "best=true", "average=2", code=2).stderr
    assert refused == "error: best=true selects one checkpoint: leave out average=2\n"
    # With more patience the run goes on, and in another folder the best checkpoint is taken along.
    train(tmp_path / "more", f"ckpt={tmp_path / 'run'}", "patience=3")
    assert load_archive(tmp_path / "more" / "checkpoints" / "last.ckpt")["global_step"] == 8
    assert load_archive(tmp_path / "more" / "checkpoints" / "best.ckpt")["global_step"] == 2


def test_refused_best(autoregressive: Path, tmp_path: Path) -> None:
    refused = train(tmp_path / "run", *SMALL, "patience=2", code=2).stderr
    assert refused == "error: patience needs a metric, e.g. best=val/bleu\n"
    refused = script("evaluate.py", f"ckpt={autoregressive}", "best=true", code=2).stderr
    assert refused.endswith("has no best.ckpt; train.py best=val/bleu saves one\n")


# Logging.


def test_log_file(short: Path) -> None:
    """One line per interval; ``train.log`` holds what was printed; every value is in metrics.csv too."""
    printed, log = (short / "stdout").read_text(), (short / "train.log").read_text()
    lines = [line for line in printed.splitlines() if line.startswith("step ")]
    assert [line.split(",")[0] for line in lines] == [f"step {step}/5" for step in range(1, 6)]
    for part in ("loss", "lr", "gradient norm", "target tokens/s", "left"):
        assert all(part in line for line in lines)
    assert "Epoch" not in printed
    assert set(printed.splitlines()) | set((short / "stderr").read_text().splitlines()) == set(log.splitlines())
    for column in ("train/loss", "train/lr", "train/gradient_norm", "train/tokens_per_second", "train/seconds_left"):
        assert len(rows(short, column)) == 5, column
    (nats,) = rows(short, "val/nats_per_token")
    assert 0 < nats < 20
    assert "val/nats_per_token: bound, estimated with one draw per sentence" in printed
    assert "likelihood: bound" in (short / "hparams.yaml").read_text()


def test_errors_are_in_the_log(tmp_path: Path) -> None:
    refused = train(tmp_path, *SMALL, "trainer.max_steps=2", "best=val/perplexity", code=2).stderr
    assert "best=val/perplexity is not computed in this run; choose one of val/" in refused
    assert refused.splitlines()[-1] in (tmp_path / "train.log").read_text()


def test_no_logger(autoregressive: Path) -> None:
    """``metrics.csv`` is always written, and the likelihood of this system is exact."""
    assert rows(autoregressive, "val/nats_per_token")
    assert "likelihood: exact" in (autoregressive / "hparams.yaml").read_text()


# Several processes.


def test_two_processes_print_no_warnings(tmp_path: Path) -> None:
    overrides = [*SMALL, "trainer=ddp_cpu", "trainer.max_steps=2", "trainer.val_check_interval=1"]
    assert train(tmp_path, *overrides, "trainer.log_every_n_steps=1").stderr == ""


@pytest.mark.slow
def test_torchrun(tmp_path: Path) -> None:
    overrides = [*SMALL, "trainer=ddp_cpu", "trainer.max_steps=2", f"hydra.run.dir={tmp_path}/run"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29533", "train.py"]
    done = subprocess.run([*command, *overrides], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"done: python evaluate.py ckpt={tmp_path}/run") == 1
    state = load_archive(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert state["global_step"] == 2


def test_torchrun_with_another_number_of_devices(tmp_path: Path) -> None:
    launched = {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "GROUP_RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    arguments = ["trainer.devices=1", f"hydra.run.dir={tmp_path / 'run'}"]
    refused = script("train.py", *SMALL, *arguments, code=2, environment=launched).stderr
    assert refused == (
        "error: torchrun starts 2 processes per machine, but trainer.devices=1: give both the same number\n"
    )
