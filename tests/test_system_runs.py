"""Every baseline through the scripts: stopped and resumed to the bit, two ranks, int8, likelihood, decoding page."""

import json
from pathlib import Path

import pytest

from rdm.app.run_folder import RunFolder
from tests.same import assert_same_run
from tests.scripts import script
from tests.test_end_to_end import rows
from tests.test_resume import DDP, SMALL

WITHOUT = {"gpt2": ("model.hidden", "decoding.steps"), "gpvae_t5": ("decoding.steps",)}
"""Keys that the network or the decoding of a system does not have."""
OPTIONS = {
    "cdcd": ["model.embedding=8", "model.layers=1"],
    "diffuseq": [
        "model=diffuseq_tiny_decoder",
        "model.embedding=8",
        "model.layers=1",
        "system.steps._target_=rdm.diffusion.step_importance.LossProportionalSteps",
    ],
    "levt": ["system.editor.placeholders=31"],
    "gpt2": ["model.layers=1", "model.heads=2"],
    "gpvae_t5": ["model.layers=1", "model.heads=2"],
}
CASES = [
    *((name, []) for name in ("cmlm_smart", "cmlmc", "disco", "any_order", "cdcd", "diffuseq", "gpt2", "gpvae_t5")),
    ("levt", DDP),
]


def arguments(system: str, folder: Path, devices: list[str]) -> list[str]:
    small = [each for each in SMALL if not each.startswith(WITHOUT.get(system, ()) or "-")]
    return [f"system={system}", *small, *OPTIONS.get(system, []), *devices, f"hydra.run.dir={folder}"]


@pytest.mark.slow
@pytest.mark.parametrize(("system", "devices"), CASES, ids=[name for name, _ in CASES])
def test_stopped_and_resumed(system: str, devices: list[str], tmp_path: Path) -> None:
    """A run that is stopped and resumed ends as one that is not; then it is evaluated and traced."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    script("train.py", *arguments(system, whole, devices))
    stop = json.dumps({"SignalAfter": {"steps": 5}})
    script("-m", "tests.stops", stop, *arguments(system, broken, devices), code=143)
    assert not RunFolder(broken).finished
    script("train.py", *arguments(system, broken, devices), "resume=auto")
    assert_same_run(whole, broken)
    likelihood = [] if system in ("levt", "cdcd", "diffuseq") else ["likelihood=2"]
    script("evaluate.py", f"ckpt={whole}", "int8=true", "limit=4", *likelihood)
    (row,) = rows(whole)
    assert row["system"] == system
    assert ("nats_per_token" in json.dumps(row)) == bool(likelihood)
    page = tmp_path / "page.html"
    script("generate.py", f"ckpt={whole}", "sentences=2", "trace=true", f"page={page}")
    assert page.read_text().count('<section class="example"') == 2
