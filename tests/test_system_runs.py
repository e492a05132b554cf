"""Every system through the scripts: two ranks stopped and resumed to the bit, int8, likelihood, decoding page."""

import json
from pathlib import Path

import pytest

from rdm.app.run_folder import RunFolder
from rdm.training.checkpoints import load_archive
from tests.same import assert_same_run
from tests.scripts import script
from tests.test_end_to_end import rows
from tests.test_resume import DDP, SMALL

SYSTEMS = {
    "cmlm": [],
    "cmlm_smart": [],
    "cmlmc": [],
    "disco": [],
    "levt": ["system.editor.placeholders=31"],
    "any_order": [],
    "cdcd": ["model.embedding=8", "model.layers=1"],
    "diffuseq": [
        "model=diffuseq_tiny_decoder",
        "model.embedding=8",
        "model.layers=1",
        "system.steps._target_=rdm.diffusion.step_importance.LossProportionalSteps",
    ],
    "ar": [],
    "gpt2": ["model.layers=1", "model.heads=2"],
    "gpvae_t5": ["model.layers=1", "model.heads=2"],
    "lm": ["model.layers=1"],
    "any_order_lm": ["model.layers=1"],
    "ar_lm": ["model.layers=1"],
}
"""Further overrides of each system."""
WITHOUT = {
    "ar": ("decoding.steps",),
    "gpt2": ("model.hidden", "decoding.steps"),
    "gpvae_t5": ("decoding.steps",),
    "lm": ("data.max_tokens", "model.dropout"),
    "any_order_lm": ("data.max_tokens", "model.dropout"),
    "ar_lm": ("data.max_tokens", "model.dropout", "decoding.steps"),
}
"""Keys that the network, the decoding or the data of a system does not have."""
FITTED = {"cdcd": "system.warp.log_increments", "diffuseq": "system.steps.log_losses"}
"""Parameters of the distribution of noise levels, which depends on the losses seen in training."""


def arguments(system: str, folder: Path) -> list[str]:
    small = [each for each in SMALL if not each.startswith(WITHOUT.get(system, ()) or "-")]
    return [f"system={system}", *small, *SYSTEMS[system], *DDP, f"hydra.run.dir={folder}"]


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_stopped_and_resumed_on_two_ranks(system: str, tmp_path: Path) -> None:
    """A run that is stopped and resumed ends as one that is not; then it is evaluated and traced.

    Both ranks resume with the weights of the first, so ranks that did not agree on all weights would end differently.
    """
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    script("train.py", *arguments(system, whole))
    stop = json.dumps({"SignalAfter": {"steps": 5}})
    script("-m", "tests.stops", stop, *arguments(system, broken), code=143)
    assert not RunFolder(broken).finished
    script("train.py", *arguments(system, broken), "resume=auto")
    assert_same_run(whole, broken)
    if system in FITTED:
        fitted = load_archive(whole / "checkpoints" / "last.ckpt")["state_dict"][FITTED[system]]
        assert len(fitted.unique()) > 1
    likelihood = [] if system in ("levt", "cdcd", "diffuseq") else ["likelihood=2"]
    script("evaluate.py", f"ckpt={whole}", "int8=true", "limit=4", *likelihood)
    (row,) = rows(whole)
    assert row["choices"]["system"] == system
    assert ("nats_per_token" in json.dumps(row)) == bool(likelihood)
    page = tmp_path / "page.html"
    script("generate.py", f"ckpt={whole}", "sentences=2", "trace=true", f"page={page}")
    assert page.read_text().count('<section class="example"') == 2
