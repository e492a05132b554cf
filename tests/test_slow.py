"""Slow tests: quality of trained models, the benchmark and torchrun."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rdm.bench.around import SECONDS, SHARE

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, timeout=1500)


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]


def test_adaptive_decoding_beats_vanilla_decoding(tmp_path: Path) -> None:
    """By at least 3 BLEU with 4 and with 10 iterations, for the default run of train.py."""
    run = tmp_path / "run"
    python("train.py", f"hydra.run.dir={run}", "callbacks.progress=null")
    sweep = ["decoding=vanilla,rdm", "decoding.steps=4,10", "schedule=linear", f"hydra.sweep.dir={tmp_path}"]
    python("evaluate.py", "-m", f"ckpt={run}", *sweep)
    bleu = {(row["strategy"], row["steps"]): row["metrics"]["sacrebleu"]["value"] for row in rows(run)}
    for steps in (4, 10):
        assert bleu["rdm", steps] >= bleu["vanilla", steps] + 3, bleu
    python("evaluate.py", f"ckpt={run}", "average=5", "limit=20")


@pytest.mark.parametrize(
    ("experiment", "metric", "least", "most"),
    [
        ("toy/ar", "sacrebleu", 80, 100),
        ("toy/cmlm", "sacrebleu", 70, 100),
        ("toy/rdm_multinomial", "sacrebleu", 55, 100),
        ("toy_text/ar", "nats_per_token", 0, 2.3),
        ("toy_text/rdm_absorbing", "nats_per_token", 0, 2.6),
    ],
)
def test_systems_learn_the_generated_text(
    experiment: str, metric: str, least: float, most: float, tmp_path: Path
) -> None:
    """Bounds with a margin to the measured 88.9, 80.8 and 63.1 BLEU, 2.13 and 2.40 nats (unigrams: 4.05)."""
    run = tmp_path / "run"
    python("train.py", f"experiment={experiment}", f"hydra.run.dir={run}", "callbacks.progress=null")
    python("evaluate.py", f"ckpt={run}", "likelihood=8")
    (row,) = rows(run)
    assert least <= row["metrics"][metric]["value"] <= most, row["metrics"]


def test_quick_benchmark(tmp_path: Path) -> None:
    python("-m", "rdm.bench", "--quick", "--out", str(tmp_path))
    measured = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert {"training", "decoding", "batch 1", "batch 32", "training by vocabulary", "data"} <= {
        row["section"] for row in measured
    }
    assert {row["unit"] for row in measured if row["memory"] is None} == {SECONDS, SHARE}
    inside = [row for row in measured if row["memory"] is not None]
    assert all(row["rate"] > 0 and row["memory"] > 0 for row in inside)
    assert all(0 < row["outside"] < 1 for row in inside if row["section"] != "data")
    assert sum(row["rate"] for row in measured if row["unit"] == SHARE) == pytest.approx(1)
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_torchrun(tmp_path: Path) -> None:
    """Two CPU processes train four steps and write one run folder."""
    small = ["data.corpus.train_size=200", "data.corpus.valid_size=10", "callbacks.sampling.sentences=2"]
    cpu = ["trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu", "trainer.precision=32-true"]
    steps = ["trainer.max_steps=4", "trainer.val_check_interval=4", "callbacks.progress=null"]
    folders = [f"hydra.run.dir={tmp_path / 'run'}", f"data.cache={tmp_path / 'cache'}"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    python(*torchrun, "train.py", *cpu, *small, *steps, *folders)
    state = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["global_step"] == 4
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 2  # a header and one validation
