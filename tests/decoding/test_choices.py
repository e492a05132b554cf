"""The decoding choices of conf/: what each name builds, and that it decodes."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig

from rdm.decoding.adaptive import KLASS, Editing, EntropyBound, Factor, RenoisingEntropyBound, Threshold
from rdm.decoding.blocks import Blocks
from rdm.decoding.candidates import LengthChoice, NearLengths, TopLengths
from rdm.decoding.convergence import Converged
from rdm.decoding.correcting import LeaveOneOut, Psi
from rdm.decoding.remasking import ReMDMCap, ReMDMConf, ReMDMLoop, ReMDMRescale
from rdm.decoding.routing import P2
from rdm.decoding.sampler import Sampler
from rdm.decoding.scores import Confidence, LeftToRight, Margin, NegativeEntropy
from rdm.decoding.search import Particles
from rdm.decoding.transition import Transition
from rdm.decoding.transition_times import DNDM, DNDMTopK
from rdm.vocab import Vocab
from tests.decoding.helpers import TEXT_NOISE_ROUTERS, VOCAB, ContextDenoiser, make_canvas, make_process, seeded

CONF = Path(__file__).parents[2] / "conf"
CHOICES = {
    "remdm_cap": (ReMDMCap, {"eta": 0.008}, 10),
    "remdm_rescale": (ReMDMRescale, {"eta": 0.015}, 10),
    "remdm_conf": (ReMDMConf, {}, 10),
    "remdm_loop": (ReMDMLoop, {"eta": 0.02, "t_on": 0.55, "t_off": 0.05, "alpha_on": 0.9}, 10),
    "dndm": (DNDM, {"a": None, "b": None}, 50),
    "dndm_k": (DNDMTopK, {"a": None, "b": None}, 50),
    "threshold": (Threshold, {"threshold": 0.9}, 10),
    "factor": (Factor, {"factor": 1.0}, 10),
    "entropy_bound": (EntropyBound, {"gamma": 0.1}, 10),
    "entropy_bound_renoise": (RenoisingEntropyBound, {"gamma": 0.1}, 32),
    "klass": (KLASS, {"threshold": 0.6, "max_divergence": 0.015, "history": 2}, 10),
    "editing": (Editing, {"threshold": 0.9, "edit_threshold": 0.95}, 10),
    "p2": (P2, {"eta": 1.0}, 10),
    "psi": (Psi, {"eta": 0.02}, 10),
    "fast": (EntropyBound, {"gamma": 2.0}, 10),
    "best": (Factor, {"factor": 1.0}, 10),
    "leave_one_out": (LeaveOneOut, {"corrected": 0.1}, 10),
}
RANKINGS = {"confidence": Confidence, "margin": Margin, "entropy": NegativeEntropy, "left_to_right": LeftToRight}
BETA = {  # (absorbing, multinomial) of DNDM
    "iwslt14": ((5, 3), (17, 5)),
    "wmt14": ((3, 3), (5, 3)),
    "wmt16": ((20, 5), (17, 7)),
}


def decoding(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", list(overrides))
    config.run_dir = "unused"
    config.vocab = {**config.vocab, **asdict(Vocab(size=30))}
    return config.decoding


@pytest.mark.parametrize("name", CHOICES)
def test_choice_of_router(name: str) -> None:
    """The published defaults; the strategy passes the check for 50 steps and decodes."""
    transition, options, steps = CHOICES[name]
    built = instantiate(decoding(f"decoding={name}"))
    assert isinstance(built, Sampler)
    assert type(built.transition) is transition
    record = built.transition.describe()
    assert {key: record[key] for key in options} == options
    assert (built.name, built.steps) == (name, steps)
    noise = "uniform" if name in TEXT_NOISE_ROUTERS else "absorbing"
    process, canvas = make_process(noise, 50), make_canvas([9, 5], prefix=1)
    built.check(process)
    decoded = built.run(process, ContextDenoiser(process, 10), canvas, seeded())
    assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()
    assert (decoded.calls <= torch.tensor([steps, steps])).all()


def test_presets_are_the_documented_choices() -> None:
    """``best`` is ``factor`` with ``selection=length_aware``, ``fast`` is ``entropy_bound`` with gamma 2."""
    pairs = (
        (["decoding=best"], ["decoding=factor", "selection=length_aware"]),
        (["decoding=fast"], ["decoding=entropy_bound", "decoding.transition.gamma=2"]),
    )
    for preset, options in pairs:
        ours, theirs = (instantiate(decoding(*words)).describe() for words in (preset, options))
        assert ours == {**theirs, "name": ours["name"]}


@pytest.mark.parametrize(("router", "name"), [("rdm", "confidence"), ("p2", "margin"), ("dndm_k", "entropy")])
def test_choice_of_ranking(router: str, name: str) -> None:
    assert type(instantiate(decoding(f"decoding={router}", f"ranking={name}")).transition.score) is RANKINGS[name]


@pytest.mark.parametrize("data", BETA)
def test_beta_distributions_of_dndm(data: str) -> None:
    for noise, (a, b) in zip(("absorbing", "multinomial"), BETA[data], strict=True):
        built = instantiate(decoding("decoding=dndm", f"transition_times={data}_{noise}"))
        assert (built.transition.a, built.transition.b) == (a, b)


def test_wrappers_are_overridable() -> None:
    built = instantiate(decoding("decoding=rdm", "decoding.block=8", "decoding.stop_on_convergence=2"))
    blocks = built.reverse_process
    assert (type(blocks), blocks.size) == (Blocks, 8)
    assert (type(blocks.transition), blocks.transition.patience) == (Converged, 2)
    assert blocks.transition.transition is built.transition
    plain = instantiate(decoding("decoding=rdm"))
    assert plain.reverse_process is plain.transition
    assert type(instantiate(decoding("decoding=particles")).search) is Particles


@pytest.mark.parametrize(
    ("override", "attribute", "expected"),
    [
        ("decoding.transition.threshold=0.7", "threshold", 0.7),
        ("decoding.transition.threshold=1", "threshold", 1),
    ],
)
def test_options_of_a_router_are_overridable(override: str, attribute: str, expected: float) -> None:
    transition: Transition = instantiate(decoding("decoding=threshold", override)).transition
    assert getattr(transition, attribute) == expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], TopLengths),
        (["decoding/length_choice=top"], TopLengths),
        (["decoding/length_choice=near"], NearLengths),
        (["decoding=mbr", "decoding/length_choice=near"], NearLengths),
        (["decoding.length_choice._target_=rdm.decoding.candidates.NearLengths"], NearLengths),
    ],
)
def test_choice_of_lengths(overrides: list[str], expected: type[LengthChoice]) -> None:
    """By group or by class path."""
    assert type(instantiate(decoding(*overrides)).length_choice) is expected
