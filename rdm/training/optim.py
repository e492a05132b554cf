"""Optimisers and learning-rate schedules, each named by its class in the configuration.

Any class of :mod:`torch.optim` and :mod:`torch.optim.lr_scheduler` can be used, as a partial::

    algorithm: {_target_: torch.optim.SGD, _partial_: true, momentum: 0.9}
    schedule: {_target_: torch.optim.lr_scheduler.ExponentialLR, _partial_: true, gamma: 0.999}
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from rdm.describe import Described
from rdm.errors import UserError, require
from rdm.training.parameter_groups import CombinedOptimizer, OptimizerFactory, ParameterGroup, partition

SchedulerFactory = Callable[[Optimizer], LRScheduler]


class LearningRateSchedule(Described, ABC):
    """Factor of the peak learning rate: linear warm-up, then a decay.

    Args:
        warmup_steps: optimiser steps until the peak is reached.
    """

    def __init__(self, warmup_steps: int) -> None:
        require(warmup_steps >= 0, f"optimizer.schedule.warmup_steps must be 0 or above, got {warmup_steps}")
        self.warmup_steps = warmup_steps

    def factor(self, step: int, total_steps: int) -> float:
        """Return the factor at optimiser step 0, 1, ... of ``total_steps``."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        return self.decay(step, total_steps)

    @abstractmethod
    def decay(self, step: int, total_steps: int) -> float:
        """Return the factor after the warm-up; it starts at 1."""


class InverseSqrt(LearningRateSchedule):
    """``sqrt(warmup / step)``.

    >>> InverseSqrt(warmup_steps=100).factor(400, total_steps=1000)
    0.5
    """

    def decay(self, step: int, total_steps: int) -> float:
        warmup = max(self.warmup_steps, 1)
        return math.sqrt(warmup / max(step, warmup))


class Cosine(LearningRateSchedule):
    """Half a cosine period from 1 down to ``floor`` at the last step.

    >>> Cosine(warmup_steps=0, floor=0.5).factor(1000, total_steps=1000)
    0.5
    """

    def __init__(self, warmup_steps: int, floor: float = 0.0) -> None:
        super().__init__(warmup_steps)
        self.floor = floor

    def decay(self, step: int, total_steps: int) -> float:
        progress = min((step - self.warmup_steps) / max(total_steps - self.warmup_steps, 1), 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


class Optimization(Described):
    """An optimiser for the parameters of a model, and a schedule for its learning rate.

    Options that are None are left to the algorithm.

    Args:
        schedule: a :class:`LearningRateSchedule`, or a partial of a ``torch.optim.lr_scheduler`` class that is stepped
            after every optimiser step; None keeps the learning rate constant.
        lr, betas, weight_decay, eps: options of ``algorithm``.
        algorithm: a ``torch.optim`` class, or a partial of one with more options.
        groups: parameters that are updated by another optimiser, by name; the others are updated by ``algorithm``.

    >>> optimizer, _ = Optimization(lr=0.1, algorithm=torch.optim.SGD).build(nn.Linear(2, 2), total_steps=10)
    >>> type(optimizer).__name__, optimizer.param_groups[0]["lr"]
    ('SGD', 0.1)
    """

    def __init__(
        self,
        schedule: LearningRateSchedule | SchedulerFactory | None = None,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        weight_decay: float | None = None,
        eps: float | None = None,
        algorithm: OptimizerFactory = AdamW,
        groups: Mapping[str, ParameterGroup] | None = None,
    ) -> None:
        require(lr is None or lr > 0, f"optimizer.lr must be above 0, got {lr}")
        pair = betas is None or (len(betas) == 2 and all(0 <= beta < 1 for beta in betas))
        require(pair, f"optimizer.betas must be two numbers in [0, 1), got {betas and list(betas)}")
        require(callable(algorithm), f"optimizer.algorithm must name an optimiser by _target_, got {algorithm!r}")
        usable = schedule is None or isinstance(schedule, LearningRateSchedule) or callable(schedule)
        require(usable, f"optimizer.schedule must name a learning-rate schedule by _target_, got {schedule!r}")
        self.schedule, self.groups = schedule, dict(groups or {})
        options = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "eps": eps}
        self.algorithm = _with_options(algorithm, options)
        # Wrong options are an error now rather than after the data has been prepared.
        for key, factory in self._factories().items():
            _make(key, factory, [nn.Parameter(torch.zeros(2, 2))], fused=False)

    def _factories(self) -> dict[str, OptimizerFactory]:
        """Return all optimiser factories by their config key."""
        others = {f"optimizer.groups.{name}.algorithm": group.algorithm for name, group in self.groups.items()}
        return {"optimizer.algorithm": self.algorithm, **others}

    def build(self, model: nn.Module, total_steps: float, fused: bool = True) -> tuple[Optimizer, LRScheduler]:
        """Return the optimiser of ``model`` and its schedule over ``total_steps`` optimiser steps.

        Args:
            fused: use the fused kernels of the algorithms that have them.
        """
        optimizers = [
            _make(key, factory, parameters, fused)
            for (key, factory), parameters in zip(self._factories().items(), partition(model, self.groups), strict=True)
            if parameters
        ]
        optimizer = optimizers[0] if len(optimizers) == 1 else CombinedOptimizer(optimizers)
        return optimizer, self._scheduler(optimizer, int(min(total_steps, 2**31)))

    def _scheduler(self, optimizer: Optimizer, total_steps: int) -> LRScheduler:
        schedule = self.schedule
        if schedule is None:
            return LambdaLR(optimizer, lambda step: 1.0)
        if isinstance(schedule, LearningRateSchedule):
            return LambdaLR(optimizer, lambda step: schedule.factor(step, total_steps))
        return schedule(optimizer)


def as_optimization(optimizer: Optimization | OptimizerFactory) -> Optimization:
    """Return ``optimizer``; a bare partial of a ``torch.optim`` class is used at a constant learning rate."""
    return optimizer if isinstance(optimizer, Optimization) else Optimization(algorithm=optimizer)


def _with_options(algorithm: OptimizerFactory, options: Mapping[str, Any]) -> OptimizerFactory:
    """Bind the options that are not None; their config keys are ``optimizer.<name>``."""
    kind, bound = _unwrap(algorithm)
    known = inspect.signature(kind).parameters
    chosen = {name: value for name, value in options.items() if value is not None}
    for name in chosen:
        key = f"optimizer.{name}"
        require(name in known, f"{key}: {kind.__name__} has no such option; add {key}=null")
        require(name not in bound, f"{key} and optimizer.algorithm.{name} are both set; add {key}=null")
    return partial(kind, **bound, **chosen)


def _make(key: str, factory: OptimizerFactory, parameters: Iterable[nn.Parameter], fused: bool) -> Optimizer:
    kind, bound = _unwrap(factory)
    # Optimisers save their options in checkpoints, which hold plain data only: a list of the configuration is not.
    options = {name: tuple(value) if _is_list(value) else value for name, value in bound.items()}
    if "fused" in inspect.signature(kind).parameters and not options.keys() & {"fused", "foreach"}:
        options["fused"] = fused
    try:
        return kind(parameters, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{key}: {kind.__name__} refuses its options: {str(error).splitlines()[0]}") from error


def _unwrap(factory: OptimizerFactory) -> tuple[Any, dict[str, Any]]:
    """Return the class of a partial, nested or not, and the options bound to it."""
    options: dict[str, Any] = {}
    while isinstance(factory, partial):
        options = {**factory.keywords, **options}
        factory = factory.func
    return factory, options


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
