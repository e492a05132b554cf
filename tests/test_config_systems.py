"""What a system or a diffusion chooses: its parts, its networks, its decodings."""

import pytest
from hydra.errors import ConfigCompositionException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from rdm.app.checks import check_parts
from rdm.app.schema import check_types
from rdm.decoding.beam import BeamSearch
from rdm.decoding.candidates import MinimumBayesRisk
from rdm.decoding.repredict import RepredictAll
from rdm.decoding.routing import Ancestral, Commit, Conditional, MaskPredict, PosteriorStep, Unconditional
from rdm.decoding.schedule import Cosine, Linear
from rdm.diffusion import copies, correction, noise, objective, reweighting
from rdm.errors import UserError
from rdm.models.correction import CorrectingDenoiser
from rdm.models.layers import TimeEmbedding, Timeless
from rdm.systems.ar_lm import AutoregressiveLanguageModel
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.systems.base import System
from rdm.systems.diffusion_lm import DiffusionLanguageModel
from tests.configs import LM, choices, compose_only, config

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
    kinds = {**dict.fromkeys(("lm", "ar_lm", "any_order_lm"), "llama_tiny"), "gpvae_t5": "t5_tiny"}
    kinds |= {name: f"{name}_tiny" for name in ("diffuseq", "cdcd", "gpt2")}
    composed = config(f"system={system}", f"model={model}")
    if model == kinds.get(system, "tiny"):
        check_types(composed)
        assert isinstance(instantiate(composed.system), System)
    else:
        with pytest.raises(UserError, match=r"model: (EncoderDecoder|\w+Denoiser|Llama|GPT2|GPVAET5) is not a"):
            check_types(composed)


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
    [
        ("open_ended", Unconditional),
        ("open_ended_commit", Commit),
        ("open_ended_entropy", Unconditional),
        ("open_ended_vanilla", None),
    ],
)
def test_open_ended_decoding_in_evaluation(name: str, target: type | None) -> None:
    """They have the paper's sampling options; the vanilla one refers to the run's diffusion."""
    decoding = compose_only("evaluate", f"decoding={name}", "decoding.steps=64").decoding
    assert (decoding.steps, decoding.temperature, decoding.top_p, decoding.length_candidates) == (64, 1.0, 0.95, 1)
    transition = OmegaConf.to_container(decoding, resolve=False)["transition"]  # type: ignore[index, call-overload]
    assert transition == "${diffusion.vanilla}" if target is None else isinstance(instantiate(transition), target)


def test_mbr_is_the_protocol_of_the_paper() -> None:
    """Ten candidates of three lengths, temperature 0.3, Gumbel scale 5, uncond, cosine, then minimum Bayes risk."""
    decoding = instantiate(config("decoding=mbr").decoding)
    assert (decoding.samples, decoding.length_candidates, decoding.proposal.temperature) == (10, 3, 0.3)
    assert isinstance(decoding.transition, Unconditional)
    assert decoding.transition.gumbel_scale == 5
    assert isinstance(decoding.schedule, Cosine)
    assert isinstance(decoding.selection, MinimumBayesRisk)


@pytest.mark.parametrize("system", ["diffusion", "lm"])
def test_time_embedding_can_be_disabled(system: str) -> None:
    assert config(f"system={system}", "diffusion/time=none").system.denoiser.time._target_.endswith("Timeless")
