"""The config files: every choice composes, builds and is checked against the signatures of its targets."""

from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from hydra.errors import ConfigCompositionException
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

from rdm.app.checks import FILLED_IN, OPTIONS, READ, check_parts
from rdm.app.errors import explain
from rdm.app.schema import check_types
from rdm.app.unused_keys import unused_keys
from rdm.errors import UserError
from tests.configs import CONF, LM, choices, compose_only, config

GROUPS = sorted({str(file.parent.relative_to(CONF)) for file in CONF.glob("*/**/[!_]*.yaml")})
SCRIPTS = {"metrics": "evaluate", "hardware": "plan"}  # all other groups are those of train.py
OF_SYSTEMS = {"diffusion/order": ["system=any_order"]}
"""Groups that only some systems have."""
SOMETIMES_UNUSED = {
    "data.examples",  # used by rdm.plan only
    "data.vocabulary",  # of tokenizers that are trained on the corpus
    "diffusion.denoiser",  # of system=diffusion
    "diffusion.label_smoothing",  # of the cross-entropy, not of the bound
    "diffusion.length_factor",  # of a length head
    *(f"diffusion.length_head.{key}" for key in ("_target_", "dim", "max_length")),
    "diffusion.steps._target_",  # of copies at drawn steps
    "diffusion.target_length._target_",  # of a target whose length is known
}
"""Keys that a choice may have no use for; :func:`rdm.app.checks.check_overrides` then refuses to set them."""


@pytest.mark.parametrize("group", GROUPS)
def test_every_file_without_underscore_can_be_chosen(group: str) -> None:
    # experiment=toy/ar: the folders of conf/experiment are part of the choice, not groups of the defaults list.
    key, prefix = (
        ("experiment", group.removeprefix("experiment/") + "/") if group.startswith("experiment/") else (group, "")
    )
    for choice in choices(group):
        script = "evaluate" if choice == "as_trained" else SCRIPTS.get(group, "train")
        composed = compose_only(script, *OF_SYSTEMS.get(group, []), f"{key}={prefix}{choice}")
        unused = unused_keys(composed, {*READ[script], *get_type_hints(OPTIONS[script]), *FILLED_IN})
        assert set(unused) <= (SOMETIMES_UNUSED if "trainer" in composed else set())


@pytest.mark.parametrize("group", [group for group in GROUPS if not group.startswith(("experiment/", "hydra/"))])
def test_files_with_underscore_are_not_offered(group: str) -> None:
    """The message for a choice that does not exist names the choices and no shared part."""
    with pytest.raises(ConfigCompositionException) as caught:
        compose_only(SCRIPTS.get(group, "train"), *OF_SYSTEMS.get(group, []), f"{group}=zzz")
    message = explain(caught.value)
    assert message is not None
    assert message.split(f"Available options in '{group}': ")[1].split() == choices(group)


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("data.vocabulary", ["data=multi30k_de_en"]),
        ("diffusion.label_smoothing", []),
        ("diffusion.length_factor", []),
    ],
)
def test_keys_that_a_choice_may_have_no_use_for_are_used_by_another(key: str, overrides: list[str]) -> None:
    assert key not in unused_keys(compose_only("train", *overrides), READ["train"])


def test_every_file_with_underscore_is_used() -> None:
    used = {name for file in CONF.rglob("*.yaml") for name in included(file)}
    assert {file.stem for file in CONF.rglob("_*.yaml")} <= used


def included(file: Path) -> set[str]:
    """Names of the config files in the defaults list of a file, and the choices for groups."""
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    names = [
        name
        for entry in content.get("defaults", [])
        for name in ([entry] if isinstance(entry, str) else entry.values())
    ]
    return {name.split("@")[0].split("/")[-1] for name in names if isinstance(name, str)}


def test_sizes_of_one_kind_have_one_network() -> None:
    """So that a system that accepts one of them accepts all."""
    for model in choices("model"):
        kind = model.split("_")[0] if model.startswith(("diffuseq", "cdcd", "llama", "gpt2", "t5")) else ""
        tiny = f"{kind}_tiny" if kind else "tiny"
        targets = [OmegaConf.load(CONF / "model" / f"{each}.yaml").get("_target_") for each in (model, tiny)]
        assert None in targets or issubclass(*map(get_class, targets))


@pytest.mark.parametrize(
    "group", ["decoding", "schedule", "reweighting", "optimizer", "trainer", "callbacks", "logger"]
)
def test_every_choice_builds(group: str) -> None:
    for choice in set(choices(group)) - {"as_trained"}:
        composed = config(f"{group}={choice}")
        check_types(composed)
        if group in ("decoding", "schedule", "reweighting", "optimizer"):
            instantiate(composed[group] if group != "schedule" else composed.decoding.schedule)


@pytest.mark.parametrize("choice", choices("metrics"))
def test_metrics_are_named_by_their_keys(choice: str) -> None:
    metrics = compose_only("evaluate", f"metrics={choice}").metrics
    check_types(metrics, "metrics")
    assert [instantiate(metric).name for metric in metrics.values()] == list(metrics)


@pytest.mark.parametrize(
    "group",
    [
        "noise",
        "noise_schedule",
        "pairing",
        "time",
        "steps",
        "objective",
        "target_length",
        "length_head",
        "self_conditioning",
    ],
)
def test_every_part_of_a_diffusion_builds(group: str) -> None:
    for choice in choices(f"diffusion/{group}"):
        composed = config(f"diffusion/{group}={choice}")
        check_types(composed)
        check_parts(composed)
        instantiate(composed.system)


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ((*LM, "diffusion/target_length=from_end"), "target_length"),
        ((*LM, "diffusion/length_head=source_length"), "length_head"),
        (("diffusion/pairing=uniform_masks", "diffusion/steps=stratified"), "steps"),
    ],
)
def test_parts_without_effect_are_refused(overrides: tuple[str, ...], part: str) -> None:
    with pytest.raises(UserError, match=f"diffusion/{part} has no effect"):
        check_parts(config(*overrides))


@pytest.mark.parametrize("name", sorted({*choices("data")} - {"as_trained"}))
def test_data_sets(name: str) -> None:
    """Every data set passes the type check and builds; published corpora have a data card."""
    suffixes = ["data.source=a", "data.target=b"] if name == "text_pairs" else []
    composed = config(f"data={name}", *suffixes)
    check_types(composed)
    assert composed.data.name == name
    instantiate(composed.data.module)
    local = name.startswith("toy_") or name in ("text_pairs", "jsonl_pairs", "plain_text")
    assert local or (CONF.parent / "data" / f"{name}.card.md").is_file()


@pytest.mark.parametrize("name", choices("data/tokenizer"))
def test_tokenizers_can_be_chosen(name: str) -> None:
    keys = {"wordpiece_file": "vocabulary", "file": "path"}
    file = [f"data.tokenizer.{keys[name]}={CONF / 'train.yaml'}"] if name in keys else []
    for data in ("qqp", "iwslt14_de_en"):
        composed = config(f"data={data}", f"data/tokenizer={name}", *file)
        check_types(composed)
        instantiate(composed.data.tokenizer)


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
def test_wrong_values_are_refused(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_types(config(override))


def test_valid_values_pass() -> None:
    check_types(config("optimizer.lr=1", "decoding.final_temperature=0.5", "trainer.devices=2", "data.max_tokens=null"))


def test_missing_value_is_refused() -> None:
    with pytest.raises(UserError, match=r"a\.b: a value is needed"):
        check_types(OmegaConf.create({"a": {"b": "???"}}))
