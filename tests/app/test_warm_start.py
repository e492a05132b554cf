"""``warm_start``: a causal phase and a denoising phase in one run."""

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf, open_dict

from rdm.app.schema import check_types
from rdm.app.warm_start import check_warm_start
from rdm.errors import UserError
from rdm.systems.ar_lm import AutoregressiveLanguageModel
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.training.checkpoints import COST_KEY, load_archive
from rdm.training.initialization import take_weights
from tests.configs import LM, config
from tests.scripts import script

SMALL = [
    "model.dim=16", "model.hidden=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "data.corpus.train_size=60", "data.corpus.valid_size=8", "data.max_tokens=256", "decoding.steps=2",
    "callbacks.sampling.sentences=2",
    "callbacks.sampling.shown=1", "trainer.val_check_interval=2",
]  # fmt: skip


def test_both_phases_in_one_command(tmp_path: Path) -> None:
    """Each phase has its steps and its system; the cost of the run is that of both; what fits is taken over."""
    run = tmp_path / "run"
    overrides = [
        *SMALL,
        "warm_start=ar",
        "warm_start.steps=3",
        "warm_start.annealing_steps=2",
        "trainer.max_steps=2",
        "optimizer.lr=1e-9",
    ]
    done = script("train.py", *overrides, f"hydra.run.dir={run}")
    first, second = (load_archive(folder / "checkpoints" / "last.ckpt") for folder in (run / "warm_start", run))
    assert (first["global_step"], second["global_step"]) == (3, 2)
    causal = OmegaConf.load(run / "warm_start" / "config.yaml")
    assert causal.system._target_.endswith("AutoregressiveSystem")
    assert (causal.choices.system, causal.choices.decoding, causal.diffusion) == ("ar", "greedy", None)
    assert OmegaConf.load(run / "config.yaml").choices.system == "diffusion"
    tokens = [state[COST_KEY]["target_tokens"] for state in (first, second)]
    assert tokens[1] > 1.3 * tokens[0]
    assert f" parameters) from {run}/warm_start/checkpoints" in done.stdout
    weights = [
        {name.partition("network.")[2]: each for name, each in state["state_dict"].items() if "network." in name}
        for state in (first, second)
    ]
    for name, value in weights[0].items():
        if name != "output_bias":  # a denoiser may predict other symbols
            torch.testing.assert_close(weights[1][name], value, rtol=0, atol=1e-5)
    again = script("train.py", *overrides, f"hydra.run.dir={run}", "resume=auto", "trainer.max_steps=3").stdout
    assert "resuming from" in again
    assert "ar: " not in again  # the first phase is finished


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [
        (["warm_start=ar"], AutoregressiveSystem),
        ([*LM, "warm_start=ar_lm"], AutoregressiveLanguageModel),
        (["system=any_order_lm", "warm_start=ar_lm"], AutoregressiveLanguageModel),
    ],
)
def test_every_tensor_of_the_network_is_taken(overrides: list[str], kind: type) -> None:
    composed = config(*overrides, "warm_start.steps=5")
    check_types(composed)
    check_warm_start(composed)
    causal, denoising = instantiate(composed.warm_start.system), instantiate(composed.system)
    assert type(causal) is kind
    causal.check(instantiate(composed.warm_start.decoding))
    taken = take_weights(denoising, causal.state_dict(), "first phase")
    assert not taken.reshaped
    assert [name for name in taken.missing if "network" in name] == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["warm_start=ar", "init=run"], "init and warm_start both give initial weights"),
        (["warm_start=ar", "trainer.devices=2"], "warm_start=ar is for one device"),
        (["warm_start=ar_lm"], "warm_start=ar_lm does not fit the system rdm_absorbing; use warm_start=ar"),
        ([*LM, "warm_start=ar"], "use warm_start=ar_lm"),
        (["warm_start=ar", "system=ar"], "system ar has no denoiser to initialise"),
        (["system=any_order", "warm_start=ar", "warm_start.annealing_steps=9"], "annealing_steps has no effect"),
        (["warm_start=ar", "warm_start.steps=0"], "warm_start.steps must be a number of steps above 0, got 0"),
    ],
)
def test_refused(overrides: list[str], message: str) -> None:
    composed = config(*overrides)
    with open_dict(composed):
        if OmegaConf.is_missing(composed.warm_start, "steps"):
            composed.warm_start.steps = 1
    with pytest.raises(UserError, match=message):
        check_warm_start(composed)
