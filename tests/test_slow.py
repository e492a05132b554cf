"""What takes minutes, or processes of its own: the claims of the demo, the benchmark, and torchrun."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, timeout=1500)


def test_adaptive_decoding_beats_vanilla_on_the_default_text(tmp_path: Path) -> None:
    """By at least 3 BLEU at 4 and at 10 iterations, on the model that ``python train.py`` makes."""
    run = tmp_path / "run"
    python("train.py", f"hydra.run.dir={run}", "callbacks.progress=null")
    sweep = ["decoding=vanilla,rdm", "decoding.steps=4,10", "schedule=linear", f"hydra.sweep.dir={tmp_path}"]
    python("evaluate.py", "-m", f"ckpt={run}", *sweep)
    rows = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    bleu = {(row["strategy"], row["steps"]): row["metrics"]["sacrebleu"]["value"] for row in rows}
    for steps in (4, 10):
        assert bleu["rdm", steps] >= bleu["vanilla", steps] + 3, bleu
    python("evaluate.py", f"ckpt={run}", "average=5", "limit=20")


def test_quick_benchmark(tmp_path: Path) -> None:
    python("-m", "rdm.bench", "--quick", "--out", str(tmp_path))
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert {"training", "decoding", "batch 1", "batch 32", "training by vocabulary", "data"} <= {
        row["section"] for row in rows
    }
    assert all(row["rate"] > 0 and row["memory"] > 0 for row in rows)
    assert all(0 < row["outside"] < 1 for row in rows if row["section"] != "data")
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_torchrun(tmp_path: Path) -> None:
    """Two CPU processes train four steps together, into one run."""
    small = ["data.corpus.train_size=200", "data.corpus.valid_size=10", "callbacks.sampling.sentences=2"]
    cpu = ["trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu", "trainer.precision=32-true"]
    steps = ["trainer.max_steps=4", "trainer.val_check_interval=4", "callbacks.progress=null"]
    folders = [f"hydra.run.dir={tmp_path / 'run'}", f"data.cache={tmp_path / 'cache'}"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    python(*torchrun, "train.py", *cpu, *small, *steps, *folders)
    state = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["global_step"] == 4
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 2  # a header and one validation
