"""W&B group, job type, tags and summary; one W&B run per job."""

from pathlib import Path

import pytest
import wandb

from rdm.training.loggers import log_row, wandb_logger
from tests.scripts import script
from tests.test_end_to_end import SMALL

CHOICES = {"data": "toy", "system": "diffusion", "diffusion": "absorbing", "decoding": "rdm", "steps": 4, "model": "x"}
KEY = "0123456789abcdef" * 2 + "01234567"
ROW = {
    "split": "test",
    "system": "absorbing",
    "steps": 4,
    "sentences_per_second": 5.0,
    "metrics": {"sacrebleu": {"value": 12.5, "signature": "s"}, "bertscore": {"value": None, "skipped": "needs x"}},
}


def test_group_tags_and_summary(tmp_path: Path) -> None:
    def job() -> str:
        logger = wandb_logger("rdm", str(tmp_path), "evaluate", CHOICES, offline=True)
        log_row(logger, ROW)
        run = logger.experiment
        assert (run.group, run.job_type) == ("toy/diffusion/absorbing", "evaluate")
        assert run.tags == ("data:toy", "system:diffusion", "diffusion:absorbing", "decoding:rdm", "steps:4")
        assert run.config["system"] == "absorbing"
        assert run.summary["test/sacrebleu"] == 12.5
        assert run.summary["test/sentences_per_second"] == 5.0
        assert "test/bertscore" not in run.summary.keys()  # noqa: SIM118
        wandb.finish()  # as the scripts do at the end of a job
        return str(run.id)

    assert job() != job()


@pytest.mark.slow
def test_sweep_with_wandb(tmp_path: Path) -> None:
    """One W&B run per job of training and evaluation, tagged with its choices; the API key is in no file."""
    environment = {"WANDB_MODE": "offline", "WANDB_API_KEY": KEY}
    runs = tmp_path / "runs"
    overrides = ["reweighting=linear,constant", "logger=wandb"]
    script("train.py", "-m", *SMALL, *overrides, f"hydra.sweep.dir={runs}", environment=environment)
    evaluation = [f"ckpt={runs}", "decoding.steps=2", "limit=2", "logger=wandb"]
    script("evaluate.py", *evaluation, f"hydra.sweep.dir={tmp_path}", environment=environment)
    again = script("evaluate.py", *evaluation, f"hydra.sweep.dir={tmp_path}", environment=environment)
    assert again.stdout.count("already") == 2
    for place, runs_each, kind, steps in (
        ("*/wandb", 1, b"train", b"steps:10"),
        ("*/logs/*/wandb", 2, b"evaluate", b"steps:2"),  # rows that exist already are logged too
    ):
        logs = [file.read_bytes() for file in runs.glob(f"{place}/offline-run-*/*.wandb")]
        assert len(logs) == 2 * runs_each
        for weight in (b"linear", b"constant"):
            own = [log for log in logs if b"reweighting:" + weight in log]
            assert len(own) == runs_each
            for log in own:
                assert b"toy_translation/diffusion/rdm_absorbing/" + weight in log
                assert kind in log
                assert steps in log
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]
