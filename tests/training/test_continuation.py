"""Every setting of a continued run takes effect or is refused."""

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rdm.app.composition import compose_config
from rdm.errors import UserError
from rdm.training.checkpoints import check_fits, flatten
from rdm.training.continuation import COMPARED, apply_options, changes, check_changes, get_options
from rdm.training.optim import Optimization, as_optimization
from tests.builders import toy_data

STEPS, TOTAL = 7, 40
SECTIONS = ("optimizer", "model", "data.module.loading", "trainer", "diffusion")
OTHER_VALUES: dict[str, Any] = {
    "optimizer.algorithm._target_": "torch.optim.NAdam",
    "optimizer.schedule._target_": "rdm.training.optim.InverseSqrt",
    "optimizer.betas": [0.8, 0.9],
    "trainer.accelerator": "auto",
    "trainer.precision": "bf16-mixed",
}
WITHOUT_EFFECT_ON_TRAINING = (
    "model.vocab",  # follows from the tokenizer
    "diffusion.name",  # a label
    "diffusion.vanilla",  # a decoding
    "trainer._target_",  # other classes are refused by the types of the configuration
    "trainer.default_root_dir",  # the run folder
    "data.module.loading._target_",
    "optimizer._target_",
    "optimizer.algorithm._partial_",
)
REFUSED = ("trainer.accumulate_grad_batches", "optimizer.algorithm._target_")


@cache
def composed(*overrides: str) -> DictConfig:
    return compose_config("train", ["run_dir=/nowhere", "optimizer.schedule.warmup_steps=3", *overrides])


def plain(config: DictConfig) -> dict[str, Any]:
    """The compared sections as plain data, as a checkpoint holds them."""
    sections = {name: OmegaConf.to_container(config[name], resolve=True) for name in COMPARED if name != "seed"}
    return {**sections, "run_dir": config.run_dir}


def leaves() -> list[str]:
    config = composed()
    found = []
    for section in SECTIONS:
        node = OmegaConf.to_container(OmegaConf.select(config, section), resolve=False)
        found += [key for key in flatten(node, section) if not key.startswith(WITHOUT_EFFECT_ON_TRAINING)]
    return found


def other_value(key: str, value: Any) -> Any:
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 + 0.01
    return 12 if value is None else f"{value}_other"


def trained(optimization: Optimization) -> tuple[Optimizer, LRScheduler]:
    """An optimiser and schedule after a few steps."""
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    optimizer, schedule = optimization.build(model, TOTAL)
    for _ in range(STEPS):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    return optimizer, schedule


def continued(saved: Optimization, current: Optimization) -> Optimizer:
    """The optimiser of a run that is continued with ``current``."""
    before = [part.state_dict() for part in trained(saved)]
    optimizer, schedule = current.build(nn.Linear(3, 3), TOTAL)
    options = get_options(optimizer)
    optimizer.load_state_dict(before[0])
    schedule.load_state_dict(before[1])
    apply_options(options, optimizer, schedule)
    return optimizer


SCHEDULER = {"lr_schedulers": [{"lr_lambdas": [None]}]}


@pytest.mark.parametrize("key", leaves())
def test_each_setting_takes_effect_or_is_refused(key: str) -> None:
    saved, config = composed(), deepcopy(composed())
    value = other_value(key, OmegaConf.select(config, key))
    OmegaConf.update(config, key, value, merge=False)
    before, now = plain(saved), plain(config)
    found = changes(before, now)
    changed_keys = [each for each, _, _ in found]
    assert changed_keys, f"{key}={value} is not noticed"
    tokenizer = toy_data().codec.tokenizer
    state = {"hyper_parameters": {**before, "tokenizer": tokenizer.fingerprint()}, **SCHEDULER}
    refusal = None
    try:
        check_fits(Path("file"), state, now["system"], tokenizer)
        optimization = as_optimization(instantiate(config.optimizer))
        check_changes(found, state, optimization)
    except UserError as error:
        refusal = str(error)
    if refusal is not None:
        assert key in refusal or "was trained with system." in refusal
        assert key.startswith(("model", "diffusion")) or key in REFUSED
        return
    if key.startswith("optimizer"):
        options = [dict(group) for group in continued(instantiate(saved.optimizer), optimization).param_groups]
        expected = [dict(group) for group in trained(optimization)[0].param_groups]
        unchanged = [dict(group) for group in trained(instantiate(saved.optimizer))[0].param_groups]
        for groups in (options, expected, unchanged):
            assert groups[0].pop("params")
        assert options == expected
        assert options != unchanged
    elif key.startswith(("model", "diffusion")):
        # The system is built with the new value, and the checkpoint holds no tensor that depends on it.
        assert key.endswith("dropout")
    elif key.startswith("data.module.loading"):
        assert getattr(instantiate(config.data.module).loading, key.rpartition(".")[2]) == value
    else:
        assert key.startswith("trainer")  # an argument of the new trainer, of which a checkpoint holds only counters


def test_nothing_changes_without_changed_settings() -> None:
    optimization: Optimization = instantiate(composed("optimizer=muon", "optimizer.groups=null").optimizer)
    before, after = trained(optimization)[0], continued(optimization, optimization)
    groups = [[dict(group) for group in optimizer.param_groups] for optimizer in (before, after)]
    for group in groups:
        group[0].pop("params")
    assert groups[0] == groups[1]
    config = plain(composed())
    other_folder = json.loads(json.dumps(config).replace("/nowhere", "/elsewhere"))
    assert changes(config, config) == changes(config, other_folder) == []


def test_schedulers_of_torch_cannot_be_changed() -> None:
    """They keep their options in the checkpoint."""
    schedule = ("optimizer.schedule._target_=torch.optim.lr_scheduler.ExponentialLR", "+optimizer.schedule.gamma=0.9")
    config = composed(
        "optimizer.lr=1", "~optimizer.schedule.warmup_steps", "+optimizer.schedule._partial_=true", *schedule
    )
    state = {"lr_schedulers": [{"gamma": 0.9}]}
    found = [("optimizer.lr", 0.1, 1)]
    with pytest.raises(UserError, match=r"optimizer.lr=1 cannot be changed from 0.1 .*use init=<run>"):
        check_changes(found, state, instantiate(config.optimizer))


def test_a_value_is_listed_once() -> None:
    config, other = composed(), composed("data.max_tokens=77", "model.dropout=0.3")
    assert changes(plain(config), plain(other)) == [
        ("data.max_tokens", plain(config)["data"]["max_tokens"], 77),
        ("model.dropout", 0.0, 0.3),
    ]
