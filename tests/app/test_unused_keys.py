"""Every key that can be set has an effect, or is refused."""

import json
from pathlib import Path
from typing import get_type_hints

import pytest
from omegaconf import OmegaConf

from rdm.app.checks import OPTIONS, READ
from rdm.app.composition import compose_config
from rdm.app.unused_keys import unused_keys
from tests.scripts import script
from tests.test_end_to_end import SMALL

REFUSED = [
    (["+optimiser=cosine"], "optimiser: there is no such key; did you mean optimizer?"),
    (["++optimiser=cosine"], "did you mean optimizer?"),
    (["+experimnt=toy/ar"], "did you mean experiment?"),
    (["+nothing.at.all=1"], "nothing: there is no such key"),
    (["optimiser=cosine"], "Could not override 'optimiser'; did you mean optimizer?"),
    (["trainer.max_step=1"], "Could not override 'trainer.max_step'; did you mean max_steps?"),
    (["+data.foo=1"], "data.foo has no effect"),
    (["+data.max_token=1"], "did you mean max_tokens?"),
    (["+diffusion.foo=1"], "diffusion.foo has no effect"),
    (["+diffusion.foo={a:1}"], "diffusion.foo has no effect"),
    (["+sweep.foo=1"], "sweep.foo has no effect"),
    (["+trainer.foo=1"], "trainer.foo: pytorch_lightning.Trainer takes no such value"),
    (["+model.foo=1"], "takes no such value"),
    (["+system.foo=1"], "takes no such value"),
    (["+optimizer.foo=1"], "takes no such value"),
    (["+callbacks.ema.foo=1"], "callbacks.ema.foo: rdm.training.ema.EMA takes no such value"),
    (["data.vocabulary=100"], "data.vocabulary has no effect"),  # a vocabulary of words, all of them
    (["system=lm", "diffusion.length_factor=1"], "diffusion.length_factor has no effect"),
    (["vocab.size=100"], "vocab.size cannot be set: the script sets it"),
    (["+choices.foo=1"], "choices.foo cannot be set: the script sets it"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_keys_without_effect_are_refused(overrides: list[str], message: str, tmp_path: Path) -> None:
    done = script("train.py", *overrides, f"hydra.run.dir={tmp_path / 'run'}", code=2)
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["evaluate.py", "generate.py"])
def test_unknown_keys_of_the_other_scripts_are_refused(name: str) -> None:
    assert "sed: there is no such key; did you mean seed?" in script(name, "+sed=1", code=2).stderr
    assert "trainer: there is no such key" in script(name, "+trainer.max_steps=1", code=2).stderr


def test_keys_of_the_modules() -> None:
    assert "did you mean optimizer?" in script("-m", "rdm.plan", "+optimiser=cosine", code=2).stderr
    assert "data.foo has no effect" in script("-m", "rdm.data.inspect", "+data.foo=1", code=2).stderr


def test_interpolations_are_followed() -> None:
    config = OmegaConf.create(
        {
            "root": {"a": "${one.two}", "b": ["${listed}"], "c": "${oc.select:selected,1}"},
            "one": "${other}",
            "other": {"two": "x/${inside}", "three": 3},
            "inside": 1,
            "listed": 2,
            "selected": 3,
            "cycle": "${unread}",
            "unread": "${cycle}",
            "empty": {},
        }
    )
    assert unused_keys(config, ["root"]) == ["cycle", "unread", "empty"]
    assert unused_keys(config, ["root.c"]) == [
        *("root.a", "root.b", "one", "other.two", "other.three", "inside", "listed", "cycle", "unread", "empty")
    ]


NOT_RECORDED = {
    "debug",  # read from the arguments, before there is a configuration
    "diffusion.name",  # referred to by name
    "diffusion.vanilla",  # referred to by decoding=vanilla
    "distil",  # decides the use of generate.py, in checks.generation_use
    "interactive",
    "job_type",  # referred to by logger=wandb
    "trust",  # in checks.check_training_files
}


def test_options_are_read_by_the_code_of_the_scripts(tmp_path: Path) -> None:
    """Two steps of training, a sweep of evaluations and a generation read every key that the checks accept."""
    run = tmp_path / "run"
    lines, decoded = tmp_path / "lines.txt", tmp_path / "decoded.txt"
    lines.write_text("a\n")
    decode = [f"ckpt={run}", "decoding.steps=2"]
    runs = [
        ("train", [*SMALL, "trainer.max_steps=2", "trainer.val_check_interval=2", f"hydra.run.dir={run}"]),
        (
            "evaluate",
            [
                "-m",
                f"ckpt={run}",
                "decoding.steps=2,3",
                "limit=2",
                "likelihood=1",
                f"hydra.sweep.dir={tmp_path / 'sweep'}",
            ],
        ),
        ("generate", [*decode, f"page={tmp_path / 'page.html'}", "trace=true"]),
        ("generate", [f"ckpt={run}", "score=true", f"input={lines}", f"targets={lines}", f"output={decoded}"]),
    ]
    reads: dict[str, set[str]] = {name: set() for name, _ in runs}
    for name, overrides in runs:
        script("tests/record_reads.py", name, str(tmp_path / name), *overrides)
        reads[name] |= set(json.loads((tmp_path / name).read_text()))
    for name in reads:
        unread = set(get_type_hints(OPTIONS[name])) - reads[name] - NOT_RECORDED
        unread &= set(unused_keys(compose_config(name, []), READ[name]))  # the others are referred to
        assert not unread, f"{name}: nothing reads {unread}; remove them, or add a run here that does"
    roots = {root for root in READ["train"] if not root.startswith("sweep.")}  # which Hydra reads
    assert roots - set.union(*reads.values()) <= NOT_RECORDED
