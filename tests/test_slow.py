"""What takes minutes: the claims of the demo, and the benchmark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
