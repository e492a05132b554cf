"""The config files: every choice composes, builds and is checked against the signatures of its targets."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.strategies import DDPStrategy

from rdm.app.checks import FILLED_IN, OPTIONS, READ, check_parts, check_task
from rdm.app.errors import explain
from rdm.app.schema import check_types
from rdm.app.unused_keys import unused_keys
from rdm.decoding.beam import BeamSearch
from rdm.decoding.candidates import MinimumBayesRisk
from rdm.decoding.repredict import RepredictAll
from rdm.decoding.routing import Ancestral, Conditional, MaskPredict, PosteriorStep, Unconditional
from rdm.decoding.schedule import Cosine, Linear
from rdm.diffusion import copies, correction, noise, objective, reweighting
from rdm.errors import UserError
from rdm.models.correction import CorrectingDenoiser
from rdm.models.layers import TimeEmbedding, Timeless
from rdm.systems.ar_lm import AutoregressiveLanguageModel
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.systems.base import System
from rdm.systems.diffusion_lm import DiffusionLanguageModel
from rdm.training.sharding import Sharded
from rdm.vocab import Vocab

CONF = Path(__file__).parent.parent / "conf"
LM = ("system=lm", "model=llama_tiny", "data=toy_text")


def compose_only(name: str, *overrides: str) -> DictConfig:
    """The config of one script, as composed by Hydra."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides))


def config(*overrides: str) -> DictConfig:
    """The config of train.py with the values that train.py fills in."""
    composed = compose_only("train", *overrides)
    composed.run_dir = "unused"
    composed.vocab = {**composed.vocab, **asdict(Vocab(size=30))}
    return composed


def choices(group: str) -> list[str]:
    """The choices of a config group."""
    return sorted(file.stem for file in (CONF / group).glob("[!_]*.yaml"))


GROUPS = sorted({str(file.parent.relative_to(CONF)) for file in CONF.glob("*/**/[!_]*.yaml")})
SCRIPTS = {"metrics": "evaluate", "hardware": "plan"}  # all other groups are those of train.py
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
        composed = compose_only(script, f"{key}={prefix}{choice}")
        unused = unused_keys(composed, {*READ[script], *get_type_hints(OPTIONS[script]), *FILLED_IN})
        assert set(unused) <= (SOMETIMES_UNUSED if "trainer" in composed else set())


@pytest.mark.parametrize("group", [group for group in GROUPS if not group.startswith(("experiment/", "hydra/"))])
def test_files_with_underscore_are_not_offered(group: str) -> None:
    """The message for a choice that does not exist names the choices and no shared part."""
    with pytest.raises(ConfigCompositionException) as caught:
        compose_only(SCRIPTS.get(group, "train"), f"{group}=zzz")
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
    """Names of the config files, not groups, in the defaults list of a file."""
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    entries = [entry for entry in content.get("defaults", []) if isinstance(entry, str)]
    return {entry.split("@")[0].split("/")[-1] for entry in entries}


SYSTEMS = {
    "absorbing": (noise.Absorbing, objective.ReweightedCrossEntropy, copies.Single, Ancestral),
    "multinomial": (noise.Uniform, objective.VariationalBound, copies.Single, PosteriorStep),
    "rdm_absorbing": (noise.Absorbing, objective.ReweightedCrossEntropy, copies.Conditioned, Unconditional),
    "rdm_multinomial": (noise.Uniform, objective.ReweightedCrossEntropy, copies.Conditioned, Unconditional),
    "rdm_mixture": (noise.Mixture, objective.ReweightedCrossEntropy, copies.Conditioned, Unconditional),
    "cmlm": (noise.Absorbing, objective.ReweightedCrossEntropy, copies.UniformMasks, MaskPredict),
    "cmlm_smart": (noise.Absorbing, correction.Smart, copies.UniformMasks, RepredictAll),
    "cmlmc": (noise.Absorbing, correction.MaskAndCorrect, copies.UniformMasks, RepredictAll),
}


@pytest.mark.parametrize("name", choices("diffusion"))
def test_parts_of_each_diffusion(name: str) -> None:
    """Noise, objective, noised copies and default transition of each ``diffusion=`` choice."""
    composed = config(f"diffusion={name}")
    check_types(composed)
    system, decoding = instantiate(composed.system), instantiate(composed.decoding)
    parts = (system.process.noise, system.objective, system.copies, decoding.transition)
    assert tuple(type(part) for part in parts) == SYSTEMS[name]
    assert system.process.num_steps == 50
    assert type(system.denoiser.time) is (Timeless if name.startswith("cmlm") else TimeEmbedding)
    assert composed.name == name
    system.check(decoding)


def test_diffuseq_sets_model_and_decoding() -> None:
    """``system=diffuseq`` sets both; an explicit choice has precedence."""
    for overrides, steps, eta in [((), 20, 0.0), (("decoding=diffuseq",), 2000, 1.0)]:
        composed = config("system=diffuseq", *overrides)
        check_types(composed)
        system, decoding = instantiate(composed.system), instantiate(composed.decoding)
        assert composed.name == "diffuseq"
        assert system.process.num_steps == 2000
        assert (decoding.steps, decoding.eta, decoding.clamp, decoding.samples) == (steps, eta, True, 1)
        system.check(decoding)
    assert config("system=diffuseq", "model=diffuseq").model.dim == 768


def test_system_sets_decoding() -> None:
    """A system sets the decoding; an explicit choice has precedence."""
    composed = config("system=ar")
    system, decoding = instantiate(composed.system), instantiate(composed.decoding)
    assert isinstance(system, AutoregressiveSystem)
    assert isinstance(decoding, BeamSearch)
    assert (composed.name, decoding.name, decoding.beam_size) == ("ar", "beam", 5)
    assert instantiate(config("system=ar", "decoding=greedy").decoding).beam_size == 1
    for name in ("cmlm", "cmlm_smart", "cmlmc"):
        assert config(f"system={name}") == config(f"diffusion={name}")
    assert instantiate(config("system=cmlm", "decoding=rdm").decoding).name == "rdm"


def test_parts_of_cmlm() -> None:
    """Plain cross-entropy on masked ordinary tokens; linear decoding schedule, five length candidates."""
    composed = config("system=cmlm")
    system, decoding = instantiate(composed.system), instantiate(composed.decoding)
    assert isinstance(system.objective.reweighting, reweighting.Constant)
    assert system.objective.label_smoothing == 0.1
    assert system.process.noise.unit == "ordinary"
    assert isinstance(decoding.schedule, Linear)
    assert decoding.length_candidates == 5


def test_cmlmc_has_its_own_decoder_layers() -> None:
    """In a seq2seq system only: a language model would silently be without them."""
    composed = config("system=cmlmc")
    check_parts(composed)
    assert isinstance(instantiate(composed.system).denoiser, CorrectingDenoiser)
    with pytest.raises(UserError, match="diffusion=cmlmc has a denoiser with a source: it is not for system=lm"):
        check_parts(config(*LM, "diffusion=cmlmc"))


@pytest.mark.parametrize("system", choices("system"))
@pytest.mark.parametrize("model", ["tiny", "diffuseq_tiny", "cdcd_tiny", "llama_tiny", "gpt2_tiny", "t5_tiny"])
def test_systems_accept_only_matching_networks(model: str, system: str) -> None:
    kinds = {"lm": "llama_tiny", "ar_lm": "llama_tiny", "gpvae_t5": "t5_tiny"}
    kinds |= {name: f"{name}_tiny" for name in ("diffuseq", "cdcd", "gpt2")}
    composed = config(f"system={system}", f"model={model}")
    if model == kinds.get(system, "tiny"):
        check_types(composed)
        assert isinstance(instantiate(composed.system), System)
    else:
        with pytest.raises(UserError, match=r"model: (EncoderDecoder|\w+Denoiser|Llama|GPT2|GPVAET5) is not a"):
            check_types(composed)


def test_sizes_of_one_kind_have_one_network() -> None:
    """So that a system that accepts one of them accepts all."""
    for model in choices("model"):
        kind = model.split("_")[0] if model.startswith(("diffuseq", "cdcd", "llama", "gpt2", "t5")) else ""
        tiny = f"{kind}_tiny" if kind else "tiny"
        targets = [OmegaConf.load(CONF / "model" / f"{each}.yaml").get("_target_") for each in (model, tiny)]
        assert targets[0] == targets[1] or None in targets


def test_diffusion_sets_reweighting_and_decoding() -> None:
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


@pytest.mark.parametrize("script", ["train", "evaluate"])
def test_decoding_schedule(script: str) -> None:
    """A decoding has a default schedule, which ``schedule=`` replaces whatever the order of the overrides."""
    for overrides, expected in [
        (["decoding=rdm"], Cosine),
        (["decoding=mask_predict"], Linear),
        (["decoding=rdm", "schedule=linear"], Linear),
        (["schedule=cosine", "decoding=mask_predict"], Cosine),
    ]:
        assert isinstance(instantiate(compose_only(script, *overrides).decoding.schedule), expected)


@pytest.mark.parametrize("decoding", ["beam", "diffuseq", "left_to_right"])
def test_decodings_without_schedule(decoding: str) -> None:
    assert "schedule" not in config(f"decoding={decoding}").decoding


@pytest.mark.parametrize("script", ["evaluate", "generate"])
def test_any_key_of_the_trained_decoding_can_be_overridden(script: str) -> None:
    """Without ``+``, nested keys and the schedule group included; the rest of the config refuses new keys."""
    assert compose_only(script).decoding == {}
    overrides = ["decoding.eta=0.5", "decoding.transition.gumbel_scale=1.0", "decoding.top_p=null", "schedule=linear"]
    assert compose_only(script, *overrides).decoding == {
        "eta": 0.5,
        "transition": {"gumbel_scale": 1.0},
        "top_p": None,
        "schedule": {"_target_": "rdm.decoding.schedule.Linear"},
    }
    for override in ("limits=3", "decoding=rdm decoding.eta=0.5"):
        with pytest.raises(ConfigCompositionException, match="Could not override"):
            compose_only(script, *override.split())


def test_training_needs_a_decoding() -> None:
    with pytest.raises(UserError, match="decoding=as_trained is for trained models"):
        check_parts(config("decoding=as_trained"))


@pytest.mark.parametrize(
    ("diffusion", "transition"), [("rdm_absorbing", Unconditional), ("absorbing", Ancestral)], ids=["rdm", "vanilla"]
)
def test_open_ended_text(diffusion: str, transition: type) -> None:
    """``system=lm`` sets the paper's sampling options; the transition is that of the diffusion or of ``decoding=``."""
    composed = config(*LM, f"diffusion={diffusion}")
    check_types(composed)
    system, decoding = instantiate(composed.system), instantiate(composed.decoding)
    system.check(decoding)
    assert isinstance(system, DiffusionLanguageModel)
    assert (system.process.num_steps, system.denoiser.max_length, system.max_tokens) == (100, composed.data.length, 128)
    assert isinstance(decoding.transition, transition)
    assert (decoding.proposal.temperature, decoding.proposal.top_p, decoding.length_candidates) == (1.0, 0.95, 1)
    named = config(*LM, "decoding=rdm_cond", "decoding.steps=64", "decoding.top_p=0.8")
    other = instantiate(named.decoding)
    assert isinstance(other.transition, Conditional)
    assert (other.steps, other.proposal.temperature, other.proposal.top_p) == (64, 1.0, 0.8)


def test_open_ended_decoding_in_training() -> None:
    """The sampling options of ``system=lm`` and ``decoding=open_ended`` are the same."""
    assert config(*LM, "decoding=open_ended") == config(*LM, "decoding=rdm")


def test_ar_lm_has_the_network_of_lm() -> None:
    """The same network without a time embedding, decoded left to right."""
    composed = config("system=ar_lm", *LM[1:])
    check_types(composed)
    system, decoding = instantiate(composed.system), instantiate(composed.decoding)
    system.check(decoding)
    assert isinstance(system, AutoregressiveLanguageModel)
    assert (decoding.name, decoding.max_tokens) == ("left_to_right", 128)
    assert (decoding.proposal.temperature, decoding.proposal.top_p) == (1.0, 0.95)
    twin = instantiate(config(*LM).system).denoiser.network
    shapes = [{name: p.shape for name, p in network.named_parameters()} for network in (system.network, twin)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("name", "target"),
    [("open_ended", Unconditional), ("open_ended_entropy", Unconditional), ("open_ended_vanilla", None)],
)
def test_open_ended_decoding_in_evaluation(name: str, target: type | None) -> None:
    """The paper's two decodings with its sampling options; the vanilla one refers to the run's diffusion."""
    decoding = compose_only("evaluate", f"decoding={name}", "decoding.steps=64").decoding
    assert (decoding.steps, decoding.temperature, decoding.top_p, decoding.length_candidates) == (64, 1.0, 0.95, 1)
    transition = OmegaConf.to_container(decoding, resolve=False)["transition"]  # type: ignore[index, call-overload]
    assert transition == "${diffusion.vanilla}" if target is None else isinstance(instantiate(transition), target)


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


def test_mbr_is_the_protocol_of_the_paper() -> None:
    """Ten candidates of three lengths, temperature 0.3, Gumbel scale 5, uncond, cosine, then minimum Bayes risk."""
    decoding = instantiate(config("decoding=mbr").decoding)
    assert (decoding.samples, decoding.length_candidates, decoding.proposal.temperature) == (10, 3, 0.3)
    assert isinstance(decoding.transition, Unconditional)
    assert decoding.transition.gumbel_scale == 5
    assert isinstance(decoding.schedule, Cosine)
    assert isinstance(decoding.selection, MinimumBayesRisk)


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


EXPERIMENTS = sorted(
    str(file.relative_to(CONF / "experiment").with_suffix("")) for file in (CONF / "experiment").rglob("[!_]*.yaml")
)
MILLIONS = {
    "iwslt14": (37, 40),
    "wmt14": (65, 68),
    "wmt16": (62, 65),
    "qg": (47, 50),
    "qqp": (47, 50),
    "wikitext103": (0.95 * 430, 1.05 * 430),
    "local": (2, 8),
    "smoke": (28, 34),
}


KINDS = {"DiffuSeqDenoiser": (85, 115), "CDCDDenoiser": (85, 130), "GPT2": (120, 130), "GPVAET5": (220, 230)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments(name: str) -> None:
    """Every experiment passes the checks of train.py, trains the system it is named after, and has the right size."""
    composed = config(f"experiment={name}")
    check_task(composed)
    check_types(composed)
    check_parts(composed)
    family, system = name.split("/")
    assert family in ("local", "smoke") or composed.name.removesuffix("_lm") == system.removesuffix("_plus")
    low, high = KINDS.get(composed.model._target_.rpartition(".")[2], MILLIONS.get(family, (0, 1)))
    low, high = (770, 780) if system == "gpt2_large" else (low, high)
    low, high = (0, 1) if family == "toy" else (low, high)
    pretrained = {"GPT2": 50_260, "GPVAET5": 32_102}.get(composed.model._target_.rpartition(".")[2], 300)
    vocabulary = 300 if family in ("toy", "smoke") else composed.data.tokenizer.get("size", pretrained)
    assert low <= millions(composed, vocabulary) <= high


def test_size_of_the_model_for_the_speed_figure() -> None:
    assert 90 <= millions(config("experiment=qqp/rdm_absorbing", "model=qqp_100m"), 30_522) <= 110


def millions(composed: DictConfig, vocabulary: int) -> float:
    """Parameters of the model in millions, counted on the meta device."""
    composed.vocab.size = vocabulary
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in instantiate(composed.model).parameters()) / 1e6


# dropout, steps, warm-up, tokens or sentences per step, gradient clipping, decoding, Gumbel scale
HYPER_PARAMETERS = {
    "iwslt14/rdm_absorbing": (0.3, 300_000, 30_000, 4_096, None, "rdm_cond", 0.0),
    "wmt14/rdm_multinomial": (0.1, 300_000, 10_000, 131_072, None, "rdm", 0.0),
    "wmt16/rdm_absorbing": (0.3, 120_000, 15_000, 32_768, None, "rdm_gumbel", 1.0),
    "qg/rdm_absorbing": (0.2, 70_000, 10_000, 256, 1.0, "mbr", 5.0),
    "qqp/rdm_multinomial": (0.2, 70_000, 10_000, 256, 1.0, "mbr", 5.0),
}


@pytest.mark.parametrize("name", HYPER_PARAMETERS)
def test_hyper_parameters_are_those_of_the_paper(name: str) -> None:
    composed = config(f"experiment={name}")
    batch = composed.data.max_tokens or composed.data.max_sentences
    assert HYPER_PARAMETERS[name] == (
        composed.model.dropout,
        composed.trainer.max_steps,
        composed.optimizer.schedule.warmup_steps,
        batch,
        composed.trainer.gradient_clip_val,
        composed.decoding.name,
        composed.decoding.transition.gumbel_scale,
    )
    assert (composed.optimizer.lr, composed.optimizer.weight_decay) == (5e-4, 0.01)


@pytest.mark.parametrize("name", ["rdm_absorbing", "multinomial", "ar"])
def test_hyper_parameters_of_wikitext(name: str) -> None:
    composed = config(f"experiment=wikitext103/{name}")
    assert (composed.data.max_sentences, composed.data.length, composed.data.prompt) == (128, 256, 32)
    assert (composed.trainer.max_steps, composed.optimizer.lr, composed.model.max_length) == (100_000, 3e-4, 256)
    assert (composed.decoding.temperature, composed.decoding.top_p) == (1.0, 0.95)
    assert name == "ar" or composed.diffusion.num_steps == 100


def test_several_devices_and_machines() -> None:
    """The tokens per step stay those of the paper; the model can be sharded over all devices."""
    run = ["experiment=wmt14/rdm_absorbing", "trainer.devices=8", "trainer.num_nodes=2"]
    for name in ("ddp", "fsdp"):
        composed = config(*run, f"trainer={name}", "trainer.accumulate_grad_batches=1", "compile=true")
        check_types(composed)
        trainer, step = composed.trainer, composed.data.module.loading.max_tokens
        assert (trainer.devices, trainer.num_nodes, trainer.precision, step) == (8, 2, "bf16-mixed", 131_072)
        assert (composed.optimizer.lr, trainer.max_steps) == (5e-4, 300_000)
    for name, kind in (("ddp", DDPStrategy), ("fsdp", Sharded)):
        strategy = instantiate(config(f"trainer={name}", "trainer.strategy.timeout_minutes=0.5").trainer.strategy)
        assert isinstance(strategy, kind)
        assert strategy._timeout == timedelta(seconds=30)


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


@pytest.mark.parametrize("system", ["diffusion", "lm"])
def test_time_embedding_can_be_disabled(system: str) -> None:
    assert config(f"system={system}", "diffusion/time=none").system.denoiser.time._target_.endswith("Timeless")


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
