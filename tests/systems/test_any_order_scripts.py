"""``system=any_order`` through the scripts: what is refused, and a model that chooses among its own candidates."""

import json
from pathlib import Path

import pytest

from rdm.app.open_model import load
from tests.scripts import script
from tests.test_end_to_end import SMALL


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["diffusion=rdm_multinomial"], "diffusion=rdm_multinomial is not for the system any_order"),
        (["reweighting=linear"], "reweighting: the loss of any_order has no weights"),
        (["diffusion.noise.noise_specials=true"], "needs masks as noise, with noise_specials=false"),
        (["diffusion/order=left_to_right", "diffusion.order.spread=0.5"], "spread must be at least 1"),
        (["diffusion/order=blocks", "diffusion.order.calls=0"], "calls must be at least 1"),
        (["diffusion/order=random_blocks", "diffusion.order.largest=0"], "largest must be at least 1"),
        (["diffusion/order=random_blocks", "diffusion.order.ahead_factor=0"], "ahead_factor must be above 0"),
        (["system.unknown_length=1"], "system.unknown_length must lie in [0, 1), got 1"),
    ],
)
def test_refused_by_the_script(options: list[str], message: str, tmp_path: Path) -> None:
    done = script("train.py", "system=any_order", *options, f"hydra.run.dir={tmp_path / 'run'}", code=2)
    assert message in done.stderr


def test_a_model_chooses_among_its_own_candidates(tmp_path: Path) -> None:
    """rescore=self returns the candidate of the highest likelihood per token, and counts the call that this takes."""
    run, results = tmp_path / "run", tmp_path / "results.jsonl"
    options = ["system=any_order", "diffusion/order=random_blocks", "decoding=jacobi"]
    short = ["trainer.max_steps=2", "trainer.val_check_interval=2", "callbacks.sampling=null"]
    script("train.py", *SMALL, *options, *short, f"hydra.run.dir={run}")
    for rescore in ("null", "self"):
        script("evaluate.py", f"ckpt={run}", f"rescore={rescore}", "decoding.steps=2", f"results={results}")
    alone, own = (json.loads(line) for line in results.read_text().splitlines())
    assert own["calls_per_sentence"] == alone["calls_per_sentence"] + 1
    assert own["decoding"]["selection"]["run"] == str(run)
    model = load(str(run))
    for line in map(json.loads, Path(own["hypotheses"]).read_text().splitlines()):
        scores = model.score([line["source"]] * 5, line["candidates"])
        means = [-score.nats / score.tokens for score in scores if score is not None]
        assert means[line["candidates"].index(line["hypothesis"])] == pytest.approx(max(means), abs=1e-4)
    beam = ["decoding=draft_beam", "decoding.steps=2", "decoding.samples=10", "rescore=self"]
    script("evaluate.py", f"ckpt={run}", *beam, f"results={results}")
    row = json.loads(results.read_text().splitlines()[-1])
    assert (row["strategy"], row["candidates"], row["calls_per_sentence"]) == ("draft_beam", 10, 3.0)
    particles = ["decoding.search._target_=rdm.decoding.search.Particles", "rescore=self"]
    refused = script("evaluate.py", f"ckpt={run}", *particles, code=2).stderr
    assert "rescore=self would call the model in every resampling; name a decoding.search.reward" in refused
    uniform = tmp_path / "uniform"
    script("train.py", *SMALL, "system=any_order", "diffusion/order=uniform", *short, f"hydra.run.dir={uniform}")
    refused = script("evaluate.py", f"ckpt={uniform}", "rescore=self", code=2).stderr
    assert (
        "name a run of system=ar, or of system=any_order with diffusion/order=random_blocks or system.unknown_length"
        in refused
    )
