"""Optimisers from the configuration, learning-rate schedules, and several optimisers combined into one."""

from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn
from torch.optim import SGD, AdamW, NAdam
from torch.optim.lr_scheduler import ExponentialLR

from rdm.app.schema import check_types
from rdm.app.targets import find_target
from rdm.app.trust import check_name
from rdm.errors import UserError
from rdm.systems.base import System
from rdm.training.module import TrainingModule
from rdm.training.muon import Muon
from rdm.training.optim import Cosine, InverseSqrt, Optimization, as_optimization
from rdm.training.parameter_groups import (
    CombinedOptimizer,
    Embeddings,
    HiddenMatrices,
    NormsAndBiases,
    ParameterGroup,
    partition,
)
from rdm.vocab import Vocab
from tests.builders import tiny_system, toy_data
from tests.configs import choices, config
from tests.same import assert_same

MUON = {"hidden": ParameterGroup(HiddenMatrices(), partial(Muon, lr=1e-2, weight_decay=0.1))}


def system(seed: int = 0) -> System:
    torch.manual_seed(seed)
    return tiny_system(Vocab(30))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any, seed: int) -> None:
    """One update with random gradients."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    schedule.step()


def test_learning_rates() -> None:
    inverse, cosine = InverseSqrt(100), Cosine(100, floor=0.1)
    for schedule in (inverse, cosine):
        assert schedule.factor(0, 1000) == pytest.approx(0.01)
        assert schedule.factor(99, 1000) == pytest.approx(1)
        assert schedule.factor(100, 1000) == pytest.approx(1)
    assert inverse.factor(400, 1000) == pytest.approx(0.5)
    assert cosine.factor(1000, 1000) == pytest.approx(0.1)
    assert cosine.factor(550, 1000) == pytest.approx(0.55)


def test_default_is_fused_adamw_to_the_bit() -> None:
    """Weights after 20 steps equal those of an AdamW that is built by hand."""
    ours, reference = system(), system()
    optimizer, schedule = instantiate(config("optimizer=toy").optimizer).build(ours, total_steps=20)
    plain = AdamW(reference.parameters(), lr=1.5e-3, betas=(0.9, 0.98), weight_decay=0.01, eps=1e-8, fused=True)
    factors = torch.optim.lr_scheduler.LambdaLR(plain, lambda number: Cosine(100).factor(number, 20))
    assert optimizer.defaults == plain.defaults
    for number in range(20):
        step(ours, optimizer, schedule, number)
        step(reference, plain, factors, number)
    assert_same(ours.state_dict(), reference.state_dict())


@pytest.mark.parametrize(
    ("overrides", "kind", "options"),
    [
        (["optimizer.algorithm._target_=torch.optim.NAdam"], NAdam, {"lr": 1.5e-3, "betas": (0.9, 0.98)}),
        (
            ["optimizer.algorithm._target_=torch.optim.SGD", "optimizer.betas=null", "optimizer.eps=null"],
            SGD,
            {"lr": 1.5e-3, "weight_decay": 0.01, "fused": True},
        ),
        (["+optimizer.algorithm.amsgrad=true", "optimizer.lr=0.5"], AdamW, {"amsgrad": True, "lr": 0.5}),
        (["+optimizer.algorithm.betas=[0.5,0.6]", "optimizer.betas=null"], AdamW, {"betas": (0.5, 0.6)}),
        (["+optimizer.algorithm.foreach=true"], AdamW, {"foreach": True, "fused": None}),
    ],
)
def test_algorithm_by_target(overrides: list[str], kind: type, options: dict[str, Any]) -> None:
    composed = config(*overrides)
    check_types(composed)
    optimizer, _ = instantiate(composed.optimizer).build(system(), total_steps=10)
    assert type(optimizer) is kind
    # Plain types: checkpoints are read with weights_only.
    assert {name: optimizer.defaults[name] for name in options} == options
    assert not any(OmegaConf.is_config(value) for value in optimizer.defaults.values())


def test_bare_optimizer_and_torch_schedule() -> None:
    """A YAML file that holds a partial of a ``torch.optim`` class only; and a schedule of torch."""
    node = OmegaConf.create({"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1})
    check_types(node, "optimizer")
    optimizer, schedule = as_optimization(instantiate(node)).build(model := system(), total_steps=10)
    assert type(optimizer) is SGD
    for number in range(3):
        step(model, optimizer, schedule, number)
    assert optimizer.param_groups[0]["lr"] == 0.1
    node = OmegaConf.create(
        {
            "_target_": "rdm.training.optim.Optimization",
            "lr": 1.0,
            "schedule": {"_target_": "torch.optim.lr_scheduler.ExponentialLR", "_partial_": True, "gamma": 0.5},
        }
    )
    check_types(node, "optimizer")
    optimizer, schedule = instantiate(node).build(model, total_steps=10)
    assert isinstance(schedule, ExponentialLR)
    for number in range(3):
        step(model, optimizer, schedule, number)
    assert optimizer.param_groups[0]["lr"] == 0.125


def test_training_module_takes_a_bare_optimizer() -> None:
    data = toy_data(train=16)
    module = TrainingModule(tiny_system(data.vocab), partial(SGD, lr=0.1))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=2,
        limit_val_batches=0,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, data)
    assert type(trainer.optimizers[0]) is SGD
    assert trainer.global_step == 2


@pytest.mark.parametrize("choice", [f"diffusion={n}" for n in choices("diffusion")] + ["system=lm", "system=diffuseq"])
def test_muon_gets_the_matrices_of_the_layers(choice: str) -> None:
    composed = config(choice, "optimizer=muon", "optimizer.lr=0.25")
    check_types(composed)
    model = instantiate(composed.system)
    optimizer, _ = instantiate(composed.optimizer).build(model, total_steps=10)
    assert isinstance(optimizer, CombinedOptimizer)
    adamw, muon = optimizer.optimizers
    assert (type(adamw), type(muon)) == (AdamW, Muon)
    assert [group["initial_lr"] for group in optimizer.param_groups] == [0.25, 0.01]
    (updated,) = (group["params"] for group in muon.param_groups)
    names = {name for name, parameter in model.named_parameters() if any(parameter is each for each in updated)}
    assert all(parameter.ndim == 2 for parameter in updated)
    stacks = (".blocks.", ".encoder.", ".decoder.")
    assert names == {
        name for name, p in model.named_parameters() if p.ndim == 2 and any(stack in f".{name}" for stack in stacks)
    }
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))


def test_selectors_divide_the_parameters() -> None:
    model = system()
    kinds = {"hidden": HiddenMatrices(), "tables": Embeddings(), "vectors": NormsAndBiases()}
    groups = {name: ParameterGroup(kind, AdamW) for name, kind in kinds.items()}
    others, *parts = partition(model, groups)
    assert {id(parameter) for part in (others, *parts) for parameter in part} == {id(p) for p in model.parameters()}
    assert all(parts)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert sorted(names[id(p)] for p in parts[1]) == [
        "denoiser.network.source_embedding.positions.weight",
        "denoiser.network.target_embedding.positions.weight",
        "denoiser.network.tokens.weight",
    ]
    assert all(parameter.ndim == 1 for parameter in parts[2])
    frozen = parts[1][0].requires_grad_(False)
    assert all(parameter is not frozen for part in partition(model, groups) for parameter in part)


def test_groups_overlap_or_are_empty() -> None:
    twice = {name: ParameterGroup(NormsAndBiases(), AdamW) for name in ("first", "second")}
    with pytest.raises(UserError, match="first and second select the same parameter"):
        partition(system(), twice)
    with pytest.raises(UserError, match=r"optimizer\.groups\.tables selects no parameter of this model"):
        partition(nn.Linear(2, 2), {"tables": ParameterGroup(Embeddings(), AdamW)})


def test_combined_optimizer_steps_like_its_parts() -> None:
    combined, separate = system(), system()
    optimizer, schedule = Optimization(InverseSqrt(3), lr=1e-2, groups=MUON).build(combined, total_steps=10)
    others, hidden = partition(separate, MUON)
    parts = [AdamW(others, lr=1e-2, fused=True), Muon(hidden, lr=1e-2, weight_decay=0.1)]
    schedules = [torch.optim.lr_scheduler.LambdaLR(part, lambda n: InverseSqrt(3).factor(n, 10)) for part in parts]
    for number in range(6):
        step(combined, optimizer, schedule, number)
        for parameter, other in zip(combined.parameters(), separate.parameters(), strict=True):
            other.grad = parameter.grad.clone()
        for part, each in zip(parts, schedules, strict=True):
            part.step()
            each.step()
    assert_same(combined.state_dict(), separate.state_dict())
    assert schedule.get_last_lr() == [each.get_last_lr()[0] for each in schedules]


def test_combined_optimizer_resumes_to_the_bit() -> None:
    uninterrupted = system()
    optimizer, schedule = Optimization(InverseSqrt(3), lr=1e-2, groups=MUON).build(uninterrupted, total_steps=10)
    for number in range(4):
        step(uninterrupted, optimizer, schedule, number)
    saved = deepcopy((uninterrupted.state_dict(), optimizer.state_dict(), schedule.state_dict()))
    resumed = system(seed=1)
    second, its_schedule = Optimization(InverseSqrt(3), lr=1e-2, groups=MUON).build(resumed, total_steps=10)
    for part, state in zip((resumed, second, its_schedule), saved, strict=True):
        part.load_state_dict(state)
    for number in range(4, 8):
        step(uninterrupted, optimizer, schedule, number)
        step(resumed, second, its_schedule, number)
    assert_same(uninterrupted.state_dict(), resumed.state_dict())
    assert_same(optimizer.state_dict(), second.state_dict())


def test_closure_runs_once() -> None:
    model = system()
    optimizer, _ = Optimization(lr=1e-2, groups=MUON).build(model, total_steps=10)
    losses = iter([3.0])
    assert optimizer.step(lambda: next(losses)) == 3.0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optimizer.algorithm._target_=torch.optim.SGD"], "optimizer.betas: SGD has no such option; add optimizer."),
        (["+optimizer.algorithm.lr=1"], "optimizer.lr and optimizer.algorithm.lr are both set"),
        (["optimizer.weight_decay=-1"], "optimizer.algorithm: AdamW refuses its options: Invalid weight_decay value"),
        (["optimizer.algorithm=abc"], "optimizer.algorithm must name an optimiser by _target_, got 'abc'"),
        (["optimizer.schedule=abc"], "optimizer.schedule must name a learning-rate schedule by _target_, got 'abc'"),
    ],
)
def test_wrong_options(overrides: list[str], message: str) -> None:
    node = config(*overrides).optimizer
    with pytest.raises(Exception, match=message) as raised:
        check_types(node, "optimizer") or instantiate(node)
    assert isinstance(raised.value.__cause__ or raised.value, UserError)


@pytest.mark.parametrize("target", ["torch.optim.AdamW", "torch.optim.Muon", "torch.optim.lr_scheduler.OneCycleLR"])
def test_torch_optim_can_be_named(target: str) -> None:
    assert find_target(target, "key").__name__ == target.rpartition(".")[2]


@pytest.mark.parametrize(
    "target",
    ["torch.optim.lr_scheduler.warnings.warn", "torch.optim.optimizer.defaultdict", "torch.optimize", "torch.load"],
)
def test_nothing_else_of_torch_can_be_named_by_a_run(target: str) -> None:
    messages = "is not a class of this package|is neither an optimiser nor a learning-rate schedule of PyTorch"
    with pytest.raises(UserError, match=messages):
        check_name(target, "key") or find_target(target, "key")
