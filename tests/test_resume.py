"""Runs that are stopped, killed or damaged are resumed, through the script itself."""

import fcntl
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rdm.app.run_folder import RunFolder
from rdm.training.checkpoints import load_archive
from tests.same import assert_same_run
from tests.scripts import ROOT, script

SMALL = [
    "data.corpus.train_size=200",
    "data.corpus.valid_size=8",
    "data.corpus.test_size=8",
    "data.max_tokens=1000",
    "model.dim=16",
    "model.hidden=16",
    "model.dropout=0.1",
    "decoding.steps=2",
    "optimizer=inverse_sqrt",
    "trainer.max_steps=8",
    "trainer.val_check_interval=3",
    "trainer.log_every_n_steps=1",
    "callbacks.progress=null",
    "+trainer.enable_progress_bar=false",
]
DDP = ["trainer=ddp_cpu", "trainer.accumulate_grad_batches=2"]


def train(folder: Path, *overrides: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    return script("train.py", *SMALL, f"hydra.run.dir={folder}", *overrides, code=code)


def stopped(folder: Path, *overrides: str, code: int, by: str = "SignalAfter", **options: Any) -> str:
    """Train until a stop of tests/stops.py; returns the output."""
    command = ["-m", "tests.stops", json.dumps({by: options}), *SMALL, f"hydra.run.dir={folder}", *overrides]
    done = script(*command, code=code)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "unbroken"
    train(folder)
    return folder


@pytest.fixture
def run(unbroken: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(unbroken, tmp_path / "run", symlinks=True))


def test_resume_auto_continues_in_the_same_folder(unbroken: Path, tmp_path: Path) -> None:
    """Without a run in the folder it starts one. Partial files of a killed process are removed."""
    folder = tmp_path / "run"
    printed = stopped(folder, "resume=auto", steps=5, code=143)
    assert "SIGTERM: saved at step 5; run the same command with resume=auto to resume" in printed
    assert not RunFolder(folder).finished
    scrap = folder / "checkpoints" / ".step_0000006.ckpt.partial"
    scrap.write_bytes(b"half")
    resumed = train(folder, "resume=auto")
    assert f"resuming from {folder}/checkpoints/last.ckpt" in resumed.stdout
    assert RunFolder(folder).finished
    assert_same_run(unbroken, folder)


def test_ckpt_continues_in_a_new_folder(unbroken: Path, tmp_path: Path) -> None:
    """The run keeps its configuration, and its log is copied."""
    stopped(tmp_path / "first", steps=4, code=143)
    script("train.py", f"ckpt={tmp_path / 'first'}", f"hydra.run.dir={tmp_path / 'second'}")
    files = {file.name for file in (tmp_path / "first" / "samples").iterdir()}
    for name in files:  # those of validations before it are where they were made
        shutil.copy(tmp_path / "first" / "samples" / name, tmp_path / "second" / "samples" / name)
    shutil.copy(tmp_path / "first" / "checkpoints" / "step_0000003.ckpt", tmp_path / "second" / "checkpoints")
    assert_same_run(unbroken, tmp_path / "second")


@pytest.mark.slow
def test_a_signal_stops_both_ranks_after_the_same_step(tmp_path: Path) -> None:
    """Whether it is sent to one rank or to the process that launched them."""
    train(tmp_path / "unbroken", *DDP)
    folder = tmp_path / "broken"
    stopped(folder, *DDP, steps=2, code=143)
    assert load_archive(folder / "checkpoints" / "last.ckpt")["global_step"] == 2
    stopped(folder, *DDP, "resume=auto", steps=5, name="SIGUSR1", launcher=True, code=138)
    train(folder, *DDP, "resume=auto")
    assert_same_run(tmp_path / "unbroken", folder)


def test_another_run_in_the_folder_is_refused(unbroken: Path) -> None:
    before = (unbroken / "metrics.csv").read_bytes()
    refused = train(unbroken, code=2).stderr
    assert (
        refused
        == f"error: {unbroken} already holds a run; continue it with resume=auto, or choose another hydra.run.dir\n"
    )
    assert (unbroken / "metrics.csv").read_bytes() == before


def test_a_second_process_in_the_folder_is_refused(unbroken: Path) -> None:
    """Even with resume=auto."""
    with (unbroken / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = train(unbroken, "resume=auto", code=2).stderr
    assert refused == f"error: another process is training in {unbroken}; wait for it, or name another folder\n"


def test_resuming_a_finished_run_changes_nothing(run: Path, unbroken: Path) -> None:
    train(run, "resume=auto")
    assert RunFolder(run).finished
    assert_same_run(unbroken, run)


def corrupt(file: Path) -> None:
    """Flip one byte of the largest tensor, which only a checksum detects."""
    with zipfile.ZipFile(file) as archive:
        tensors = [archive.read(name) for name in archive.namelist() if "/data/" in name]
    content = bytearray(file.read_bytes())
    content[content.index(max(tensors, key=len))] ^= 255
    file.write_bytes(content)


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(run: Path, unbroken: Path) -> None:
    corrupt(run / "checkpoints" / "step_0000008.ckpt")
    (run / "checkpoints" / "step_0000006.ckpt").write_bytes(b"truncated")
    refused = script("evaluate.py", f"ckpt={run}", code=2).stderr
    assert refused.startswith(f"error: {run}/checkpoints/step_0000008.ckpt is damaged: the checksum of")
    refused = script("evaluate.py", f"ckpt={run}", "average=2", code=2).stderr
    assert refused == f"error: {run}/checkpoints/step_0000006.ckpt is not a readable checkpoint (BadZipFile)\n"
    resumed = train(run, "resume=auto")
    first, second, *_ = resumed.stderr.splitlines()
    assert first.startswith(f"warning: {run}/checkpoints/step_0000008.ckpt is damaged")
    assert second.startswith(f"warning: {run}/checkpoints/step_0000006.ckpt is not a readable checkpoint")
    assert f"resuming from {run}/checkpoints/step_0000003.ckpt" in resumed.stdout
    assert_same_run(unbroken, run)


def test_all_checkpoints_damaged(run: Path) -> None:
    for file in (run / "checkpoints").iterdir():
        file.write_bytes(b"")
    refused = train(run, "resume=auto", code=2).stderr
    assert refused.splitlines()[-1] == f"error: ckpt: all checkpoints of {run} are damaged; remove them to start again"


def test_a_checkpoint_of_another_model(run: Path, tmp_path: Path) -> None:
    """Copied into a run folder: the key that differs is named."""
    other = tmp_path / "other"
    train(other, "trainer.max_steps=3", "model.dim=32")
    shutil.copy(other / "checkpoints" / "step_0000003.ckpt", run / "checkpoints" / "last.ckpt")
    message = "step_0000008.ckpt was trained with system.denoiser.length_head.dim=32, but here it is 16"
    assert message in script("evaluate.py", f"ckpt={run}", code=2).stderr
    assert message in train(run, "resume=auto", code=2).stderr


def test_a_checkpoint_of_another_vocabulary(run: Path) -> None:
    tokenizer = json.loads((run / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    (first, second) = list(vocab)[-2:]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (run / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "the tokenizer of" in script("evaluate.py", f"ckpt={run}", code=2).stderr


@pytest.mark.parametrize("devices", [[], DDP], ids=["one process", "two"])
def test_full_disk(tmp_path: Path, devices: list[str]) -> None:
    """One line; earlier checkpoints are unchanged, and the run can be resumed."""
    printed = stopped(tmp_path, *devices, by="FullDisk", steps=5, code=2)
    line = printed.splitlines()[-1]
    assert line.startswith(
        f"error: {tmp_path}/checkpoints/step_0000006.ckpt cannot be written: No space left on device"
    )
    assert sorted(file.name for file in (tmp_path / "checkpoints").iterdir()) == ["last.ckpt", "step_0000003.ckpt"]
    assert "Traceback" not in printed
    train(tmp_path, *devices, "resume=auto")


@pytest.mark.slow
def test_wandb_resumes_the_same_run(tmp_path: Path) -> None:
    stopped(tmp_path, "logger=wandb", steps=2, code=143)
    train(tmp_path, "logger=wandb", "resume=auto")
    names = [file.name for file in (tmp_path / "wandb").glob("offline-run-*")]
    assert {name.rpartition("-")[2] for name in names} == {(tmp_path / "wandb_id").read_text()}


def test_killed_and_resumed() -> None:
    """The short form of ``make test-chaos``."""
    command = [sys.executable, "-m", "tests.chaos", "--kills=2", "--ranks=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 bit-equal results" in done.stdout
