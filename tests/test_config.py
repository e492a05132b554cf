"""Values are checked against signatures, and every combination of groups composes and builds."""

from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from rdm.config import check_types
from rdm.decoding.candidates import MinimumBayesRisk
from rdm.decoding.routing import Ancestral, PosteriorStep, Unconditional
from rdm.decoding.schedule import Cosine, Linear
from rdm.diffusion import noise, objective, pairing, reweighting
from rdm.errors import UserError
from rdm.vocab import Vocab

CONF = Path(__file__).parent.parent / "conf"


def config(*overrides: str, name: str = "train") -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose(name, list(overrides))
    composed.run_dir = "unused"
    composed.vocab = {**composed.vocab, **asdict(Vocab(size=30))}
    return composed


def choices(group: str) -> list[str]:
    return sorted(file.stem for file in (CONF / group).glob("*.yaml") if file.stem not in ("base", "as_trained"))


SYSTEMS = {
    "absorbing": (noise.Absorbing, objective.ReweightedCrossEntropy, pairing.Single, Ancestral),
    "multinomial": (noise.Uniform, objective.VariationalBound, pairing.Single, PosteriorStep),
    "rdm_absorbing": (noise.Absorbing, objective.ReweightedCrossEntropy, pairing.Conditioned, Unconditional),
    "rdm_multinomial": (noise.Uniform, objective.ReweightedCrossEntropy, pairing.Conditioned, Unconditional),
    "rdm_mixture": (noise.Mixture, objective.ReweightedCrossEntropy, pairing.Conditioned, Unconditional),
}


@pytest.mark.parametrize("name", choices("diffusion"))
def test_systems_are_those_of_the_paper(name: str) -> None:
    """Noise, objective, training pair and default decoding of each ``diffusion=`` choice."""
    composed = config(f"diffusion={name}")
    check_types(composed)
    system, decoding = instantiate(composed.system), instantiate(composed.decoding)
    parts = (system.process.noise, system.objective, system.pairing, decoding.transition)
    assert tuple(type(part) for part in parts) == SYSTEMS[name]
    assert system.process.num_steps == 50
    system.check(decoding)


def test_defaults_follow_the_diffusion_and_yield_to_the_command_line() -> None:
    weight = {
        overrides: type(instantiate(config(*overrides).reweighting))
        for overrides in [
            ("diffusion=absorbing",),
            ("diffusion=rdm_absorbing",),
            ("diffusion=absorbing", "reweighting=linear"),
        ]
    }
    assert list(weight.values()) == [reweighting.Original, reweighting.Linear, reweighting.Linear]
    assert isinstance(instantiate(config("diffusion=absorbing", "decoding=rdm").decoding).transition, Unconditional)
    assert isinstance(instantiate(config("decoding=vanilla").decoding).transition, Ancestral)


def test_decoding_schedule() -> None:
    assert isinstance(instantiate(config("decoding=rdm").decoding).schedule, Cosine)
    assert isinstance(instantiate(config("decoding=rdm", "schedule=linear").decoding).schedule, Linear)


@pytest.mark.parametrize(
    "group", ["decoding", "schedule", "reweighting", "optimizer", "model", "trainer", "callbacks", "logger"]
)
def test_every_choice_is_well_formed(group: str) -> None:
    for choice in choices(group):
        composed = config(f"{group}={choice}")
        check_types(composed)
        if group in ("decoding", "schedule", "reweighting", "optimizer", "model"):
            instantiate(composed[group] if group != "schedule" else composed.decoding.schedule)


@pytest.mark.parametrize("choice", choices("metrics"))
def test_every_choice_of_metrics(choice: str) -> None:
    """Every metric is built from its configuration and carries the name it has there."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        metrics = compose("evaluate", [f"metrics={choice}"]).metrics
    check_types(metrics, "metrics")
    assert [instantiate(metric).name for metric in metrics.values()] == list(metrics)


def test_paper_protocol_for_paraphrase() -> None:
    """Ten candidates of three lengths, temperature 0.3, Gumbel scale 5, uncond, cosine, then MBR."""
    decoding = instantiate(config("decoding=mbr").decoding)
    assert (decoding.samples, decoding.length_candidates, decoding.proposal.temperature) == (10, 3, 0.3)
    assert isinstance(decoding.transition, Unconditional)
    assert decoding.transition.gumbel_scale == 5
    assert isinstance(decoding.schedule, Cosine)
    assert isinstance(decoding.selection, MinimumBayesRisk)


@pytest.mark.parametrize("group", ["noise", "noise_schedule", "pairing"])
def test_every_part_of_a_diffusion_is_well_formed(group: str) -> None:
    for choice in choices(f"diffusion/{group}"):
        check_types(config(f"diffusion/{group}={choice}"))
        instantiate(config(f"diffusion/{group}={choice}").diffusion.process)


@pytest.mark.parametrize("file", sorted((CONF / "experiment").rglob("*.yaml")), ids=lambda file: file.stem)
def test_experiments(file: Path) -> None:
    name = file.relative_to(CONF / "experiment").with_suffix("")
    check_types(config(f"experiment={name}"))
    assert config(f"experiment={name}").diffusion.name == file.stem


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=abc", "optimizer.lr: 'abc' is not a number"),
        ("diffusion.num_steps=1.5", "diffusion.num_steps: 1.5 is not a whole number"),
        ("decoding.steps=ten", "decoding.steps: 'ten' is not a whole number"),
        ("decoding.temperature=hot", "decoding.temperature: 'hot' is not a number"),
        ("model.pre_norm=maybe", "model.pre_norm: 'maybe' is not true or false"),
        ("trainer.max_steps=many", "trainer.max_steps: 'many' is not a whole number"),
        ("optimizer.betas=0.9", "optimizer.betas: 0.9 is not a tuple"),
        ("decoding.transition=rdm", "decoding.transition: 'rdm' is not a Transition"),
        ("+decoding.transition.scale=2", "decoding.transition.scale: .*takes no such value; it takes gumbel_scale"),
        ("model._target_=rdm.models.Missing", "model._target_: cannot find"),
    ],
)
def test_wrong_values(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_types(config(override))


def test_right_values_pass() -> None:
    check_types(config("optimizer.lr=1", "decoding.final_temperature=0.5", "trainer.devices=2", "data.max_tokens=null"))


def test_missing_value() -> None:
    with pytest.raises(UserError, match=r"a\.b: a value is needed"):
        check_types(OmegaConf.create({"a": {"b": "???"}}))
