"""Plans: memory by hand, a step divided over devices, and the script without any data."""

import re
from collections import Counter

import pytest
import torch
from hydra.utils import instantiate

from rdm.app.schema import check_types
from rdm.errors import UserError
from rdm.plan.counting import count_parameter_memory
from rdm.plan.estimate import make_plan
from rdm.plan.hardware import Hardware
from rdm.plan.report import Plan
from rdm.training.optim import InverseSqrt, Optimization
from rdm.vocab import Vocab
from tests.builders import tiny_system
from tests.configs import choices, compose_only
from tests.scripts import script


def plan(*overrides: str) -> Plan:
    composed = compose_only("plan", "hardware=h100", *overrides)
    composed.run_dir = "unused"
    check_types(composed)
    return make_plan(composed)


def test_memory_of_weights_and_optimiser() -> None:
    optimization = Optimization(InverseSqrt(10))
    system = tiny_system(Vocab(101))
    count = sum(parameter.numel() for parameter in system.parameters())
    scalars = 4 * len(list(system.parameters()))  # Adam stores a step count per parameter
    sizes = count_parameter_memory(system, optimization, averaged=True)
    weights = 4 * count
    assert sizes == {
        "weights": weights, "gradients": weights, "optimiser": 2 * weights + scalars, "moving average": weights,
    }  # fmt: skip
    assert count_parameter_memory(system, optimization, averaged=False)["moving average"] == 0


def test_time_is_flops_over_rate() -> None:
    hardware = Hardware("test", memory=16, peak={"32-true": 10.0}, utilisation=0.5)
    plan = Plan(hardware, "32-true", 1000, 2, 4, 64, 32, None, 1, 1, {}, Counter({"blocks": 10**13}))
    assert plan.seconds == pytest.approx(1.0)  # 10 TFLOP on two devices of 10 TFLOP/s at 50% utilisation


def test_step_is_divided_over_devices() -> None:
    """Two nodes of two devices, two micro-batches each: an eighth of the activations, the same FLOPs."""
    options = ["length=16", "data.max_tokens=8192"]
    one = plan(*options)
    shared = ["trainer.devices=2", "trainer.num_nodes=2", "trainer.accumulate_grad_batches=2"]
    replicas, shards = (plan(*options, *shared, f"trainer.strategy={name}") for name in ("ddp", SHARDED))
    assert (one.sentences, replicas.sentences, replicas.devices, replicas.micro_batches) == (512, 512, 4, 2)
    assert one.examples == 20_000
    for several in (replicas, shards):
        assert several.flops.total() == pytest.approx(one.flops.total(), rel=0.1)
        assert several.seconds == pytest.approx(one.seconds / 4, rel=0.1)
        assert several.memory["activations"] == pytest.approx(one.memory["activations"] / 8, rel=0.1)
    for what in ("weights", "gradients", "optimiser", "moving average"):
        assert replicas.memory[what] == one.memory[what]
        assert shards.memory[what] == one.memory[what] // 4


SHARDED = "{_target_:rdm.training.sharding.Sharded}"


def test_script() -> None:
    """An experiment of the paper, without its data, sharded over eight devices."""
    overrides = ["experiment=iwslt14/rdm_absorbing", "hardware=a100_40gb", "trainer=fsdp", "trainer.devices=8"]
    page = script("-m", "rdm.plan", *overrides).stdout
    for line in (
        "38,710,528",
        "128 sentences of 32 tokens: 4,096 tokens",
        "1 x 16 sentences",
        "0.02 GB",  # an eighth of 39M x 4 bytes
        "fits into 40 GB",
        "time of 300,000 steps",
        "a vocabulary of 10,152",
    ):
        assert line in page, page


@pytest.mark.parametrize("name", choices("hardware"))
def test_hardware(name: str) -> None:
    composed = compose_only("plan", f"hardware={name}")
    check_types(composed.hardware, "hardware")
    device = instantiate(composed.hardware)
    assert 0 < device.utilisation < 1
    assert device.peak["32-true"] > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer=ddp"], "trainer.devices must be a number of at least 1, got -1"),
        (["trainer.devices=auto"], "trainer.devices must be a number of at least 1, got auto"),
        (["trainer.devices=[0,1]"], "trainer.devices must be a number of at least 1, got [0, 1]"),
        (["trainer.devices=0"], "trainer.devices must be a number of at least 1, got 0"),
        (["trainer.num_nodes=0"], "trainer.num_nodes must be a number of at least 1, got 0"),
        (
            ["trainer.accumulate_grad_batches=0"],
            "accumulate_grad_batches must be a number of at least 1, got 0",
        ),
        (["trainer.accumulate_grad_batches=99"], "too few for 99"),
        (["length=0"], "length must be a number of at least 3, got 0"),
        (["length=abc"], "length must be a number of at least 3, got abc"),
        (["length=200"], "length=200 is more than the 65 tokens that a model with max_length=63 takes"),
        (["system=lm", "length=65"], "length=65 is more than the 64 tokens that a model with max_length=64 takes"),
        (["vocabulary=2"], "vocabulary must be a number of at least 6, got 2"),
        (["data.max_tokens=null"], "set data.max_tokens or data.max_sentences"),
    ],
)
def test_wrong_values(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        plan(*overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["hardware=v100", "trainer=gpu"], "trainer.precision=bf16-mixed is not for V100"),
        (["hardware=h100", "hardware.utilisation=0"], "hardware.utilisation is a share of the peak rate"),
        (["hardware=abacus"], "abacus"),
        (["trainer=ddp_cpu"], "hardware=this_machine is one device, whose processes share its rate"),
        (["callbacks=null"], "only a group that is null by default can be null"),
        (["-m", "seed=1,2"], "-m: python -m rdm.plan takes overrides (key=value) only"),
    ],
)
def test_wrong_commands(overrides: list[str], message: str) -> None:
    assert message in script("-m", "rdm.plan", *overrides, code=2).stderr


def test_help() -> None:
    assert "It takes the overrides of train.py" in script("-m", "rdm.plan", "--help").stdout


def test_unlimited_run_has_no_total_time() -> None:
    assert "time of 7 steps" in dict(plan("trainer.max_steps=7").rows())
    assert not any("steps" in name for name, _ in plan("trainer.max_steps=-1", "examples=null").rows())


@pytest.mark.slow
def test_the_largest_model_on_the_meta_device() -> None:
    """The model of WikiText-103 is planned with the parameters and bytes that it has, built without memory."""
    overrides = ("experiment=wikitext103/rdm_absorbing", "vocabulary=50257")
    planned, composed = plan(*overrides), compose_only("plan", *overrides)
    composed.vocab.size = 50257
    with torch.device("meta"):
        parameters = list(instantiate(composed.system).parameters())
    assert planned.parameters == sum(parameter.numel() for parameter in parameters) > 400_000_000
    weights = sum(parameter.nbytes for parameter in parameters)
    assert planned.memory["weights"] == planned.memory["gradients"] == planned.memory["moving average"] == weights
    assert planned.memory["optimiser"] == pytest.approx(2 * weights, rel=1e-6)


def test_default_length_is_limited_by_the_model() -> None:
    assert plan().length == 32
    assert plan("model.max_length=24").length == 26


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("cmlm_smart", "disco", "cdcd", "gpt2", "gpvae_t5")]


@pytest.mark.parametrize("system", ["cmlmc", "levt", *SLOW])
def test_every_baseline_can_be_planned(system: str) -> None:
    """Also those whose passes read their own predictions, which are ids of the vocabulary in a plan."""
    planned = plan(f"system={system}", "vocabulary=50", "length=8", "data.max_tokens=64")
    composed = compose_only("plan", f"system={system}", "vocabulary=50")
    composed.vocab.size = 50
    parameters = sum(parameter.numel() for parameter in instantiate(composed.system).parameters())
    assert planned.parameters == parameters  # also where modules share an embedding
    assert planned.flops.total() > 2 * planned.sentences * 8 * 10_000
