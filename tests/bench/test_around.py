"""The section of the benchmark about everything around the computing."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from rdm.bench import around, shares
from rdm.bench.__main__ import show
from rdm.bench.around import Script
from rdm.bench.shares import Shares


def test_parts_of_a_run_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint saved within a validation counts as saving only, and set-up is left out."""
    now = [0.0]
    monkeypatch.setattr(shares.time, "perf_counter", lambda: now[0])

    def takes(seconds: float) -> None:
        now[0] += seconds

    logger = Namespace(log_metrics=takes, save=takes)
    trainer = Namespace(save_checkpoint=takes, loggers=[logger])
    callback = Shares(str(tmp_path / "shares.json"))
    takes(100)
    callback.on_train_start(trainer, None)  # type: ignore[arg-type]
    takes(5)
    logger.log_metrics(0.5)
    callback.on_validation_start(trainer, None)  # type: ignore[arg-type]
    takes(3)
    trainer.save_checkpoint(1)
    callback.on_validation_end(trainer, None)  # type: ignore[arg-type]
    trainer.save_checkpoint(1)
    takes(1)
    callback.on_train_end(trainer, None)  # type: ignore[arg-type]
    written = json.loads((tmp_path / "shares.json").read_text())
    assert written == {"training": 6.0, "logging": 0.5, "validation": 3.0, "saving": 2.0}


def test_commands_and_parts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A further job of a sweep costs what the sweep takes more than one job, divided by the number of further jobs."""
    monkeypatch.setattr(around, "gemm_rate", lambda: 100.0)
    seen = []

    def run(script: Script) -> float:
        seen.append(script)
        for argument in script.arguments:
            if "Shares" in argument:
                file = argument.partition("file:")[2].strip("}")
                Path(file).write_text('{"training": 6, "validation": 3, "saving": 1}')
        return {"train": 5.0, "generate": 2.0}.get(script.name, 6.0 if "-m" in script.arguments else 3.0)

    monkeypatch.setattr(Script, "run", run)
    found = list(around.around("tiny", 20, 2))
    rows = {row.name: row.rate for row in found}
    assert rows["evaluate.py, one job"] == 3.0
    assert rows["evaluate.py, each further job of a sweep"] == 3.0 / (around.JOBS - 1)
    assert [rows[part] for part in ("training", "validation", "saving", "logging")] == [0.6, 0.3, 0.1, 0.0]
    folders = [each for script in seen for each in script.arguments if each.startswith("hydra.run.dir=")]
    assert len(folders) == 4
    show(found, {})
    page = capsys.readouterr().out
    assert "CPU seconds" in page
    assert "60.0%" in page
    assert "GFLOP/s" not in page


def test_a_command_that_fails_shows_its_output() -> None:
    with pytest.raises(RuntimeError, match="there is no such key"):
        Script("train", ("+sed=1",)).run()
    assert Script("train", ("--help",)).run() > 0
