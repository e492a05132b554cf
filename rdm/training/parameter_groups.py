"""Several optimisers for one model: parameters selected by kind, and an optimiser that combines others.

Lightning steps one optimiser automatically, so those of all groups are combined into one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rdm.describe import Described
from rdm.errors import require

OptimizerFactory = Callable[..., Optimizer]
"""Called with an iterable of parameters: a ``torch.optim`` class, or a partial of one."""


class ParameterSelector(Described, ABC):
    """A kind of parameter."""

    @abstractmethod
    def select(self, model: nn.Module) -> Iterable[nn.Parameter]:
        """Return the parameters of this kind; a parameter may occur more than once."""


class HiddenMatrices(ParameterSelector):
    """Weight matrices of the layers in stacks (``nn.ModuleList``), the parameters Muon is made for.

    Embeddings, output projection, time embedding and length head are outside the stacks.
    """

    def select(self, model: nn.Module) -> Iterator[nn.Parameter]:
        for stack in (module for module in model.modules() if isinstance(module, nn.ModuleList)):
            yield from (parameter for parameter in stack.parameters() if parameter.ndim == 2)


class Embeddings(ParameterSelector):
    """Tables of token and position embeddings."""

    def select(self, model: nn.Module) -> Iterator[nn.Parameter]:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                yield from module.parameters(recurse=False)


class NormsAndBiases(ParameterSelector):
    """Parameters with less than two dimensions, which are usually not decayed."""

    def select(self, model: nn.Module) -> Iterator[nn.Parameter]:
        return (parameter for parameter in model.parameters() if parameter.ndim < 2)


class ParameterGroup(Described):
    """Parameters and the optimiser that updates them.

    Args:
        parameters: which parameters.
        algorithm: a partial of a ``torch.optim`` class, with its learning rate and other options.
    """

    def __init__(self, parameters: ParameterSelector, algorithm: OptimizerFactory) -> None:
        require(callable(algorithm), f"optimizer.groups: algorithm must name an optimiser, got {algorithm!r}")
        self.parameters, self.algorithm = parameters, algorithm


def partition(model: nn.Module, groups: Mapping[str, ParameterGroup]) -> list[list[nn.Parameter]]:
    """Divide the trainable parameters: first those in no group, then those of each group, in the model's order."""
    owners: dict[int, str] = {}
    for name, group in groups.items():
        for key in {id(parameter) for parameter in group.parameters.select(model)}:
            other = owners.setdefault(key, name)
            require(
                other == name, f"optimizer.groups: {other} and {name} select the same parameter; make them disjoint"
            )
    parts: dict[str | None, list[nn.Parameter]] = {None: [], **{name: [] for name in groups}}
    for parameter in model.parameters():
        if parameter.requires_grad:
            parts[owners.get(id(parameter))].append(parameter)
    for name in groups:
        require(bool(parts[name]), f"optimizer.groups.{name} selects no parameter of this model; remove it")
    return list(parts.values())


class CombinedOptimizer(Optimizer):
    """Steps several optimisers of disjoint parameters as one.

    The optimisers share ``param_groups`` and ``state`` with this object. Learning-rate schedulers, gradient clipping
    and checkpoints therefore see one optimiser with all groups, and the state dict has the usual format.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    >>> parts = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.AdamW(model[1].parameters(), lr=0.01)]
    >>> [group["lr"] for group in CombinedOptimizer(parts).param_groups]
    [0.1, 0.01]
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.optimizers = list(optimizers)
        self._sizes = [len(optimizer.param_groups) for optimizer in self.optimizers]
        super().__init__([group for optimizer in self.optimizers for group in optimizer.param_groups], defaults={})
        self._share()

    def _share(self) -> None:
        """Let every optimiser work on the groups and the state of this object."""
        groups = iter(self.param_groups)
        for optimizer, size in zip(self.optimizers, self._sizes, strict=True):
            optimizer.param_groups = [next(groups) for _ in range(size)]
            optimizer.state = self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # ``load_state_dict`` ends here, with new objects.
        super().__setstate__(state)
        self._share()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss
