"""FLOPs and memory of a training step, counted without computing it.

The step is the one of training: real tokens are noised and batched, but parameters are fake tensors, which have a shape
and no data. So a model of any size and architecture is counted in seconds on any machine.
"""

import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, register_flop_formula, sdpa_backward_flop_count, sdpa_flop_count
from torch.utils.module_tracker import ModuleTracker

from rdm.data.batch import Batch
from rdm.models.layers import attention_backend
from rdm.systems.base import System
from rdm.training.optim import Optimization
from rdm.vocab import Vocab

aten = torch.ops.aten
PREDICTED_WORD = 5  # the first id that is not a special symbol
AUTOCAST_DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@register_flop_formula(aten._scaled_dot_product_flash_attention_for_cpu)
def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


@register_flop_formula(aten._scaled_dot_product_flash_attention_for_cpu_backward)
def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


class CountingMode(TorchDispatchMode, ABC):
    """Dispatch mode that sees every operation of a step with fake parameters.

    Indexing a fake tensor by a mask needs the number of true entries; masks are real, so they are converted to
    positions. Dropout draws without a generator, so its draws are made fake; noise draws with one and stays real.
    Ids predicted by the network become real too (all the same word), because a further pass may read them as tokens.
    """

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.fake_mode = cast(FakeTensor, next(root.parameters())).fake_mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_):
            args = (args[0], list(_masks_to_positions(args[1])), *args[2:])
        with self.fake_mode if func is aten.rand.default else nullcontext():
            result = func(*args, **(kwargs or {}))
        if func.overloadpacket is aten.argmax and isinstance(result, FakeTensor):
            result = torch.full(result.shape, PREDICTED_WORD)
        self.count(func.overloadpacket, args, kwargs or {}, result)
        return result

    @abstractmethod
    def count(self, operation: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Count one operation."""


def _masks_to_positions(indices: Iterable[Tensor | None]) -> Iterator[Tensor | None]:
    for index in indices:
        if index is not None and index.dtype == torch.bool:
            yield from index.nonzero().unbind(1)
        else:
            yield index


class FlopCounter(CountingMode):
    """Counts multiplications and additions in matrix products, by part of the network.

    A part is a stack of layers, by the name of its ``nn.ModuleList`` (``encoder``, ``decoder``, ``blocks``), or
    ``vocabulary``: every product with a dimension of that size. The rest is ``other``: embeddings, time, length. The
    gradient of the target embedding may be counted as ``decoder``, because autograd leaves the decoder after it.
    """

    def __init__(self, root: nn.Module, vocabulary: int) -> None:
        super().__init__(root)
        self.tracker, self.vocabulary = ModuleTracker(), vocabulary
        self.parts = dict(stack_modules(root))
        self.total: Counter[str] = Counter()

    def count(self, operation: Any, args: Any, kwargs: Any, result: Any) -> None:
        if operation in flop_registry:
            shapes = [tensor.shape for tensor in tree_leaves(args) if isinstance(tensor, Tensor)]
            self.total[self._part(shapes)] += flop_registry[operation](*args, **kwargs, out_val=result)

    def _part(self, shapes: list[torch.Size]) -> str:
        if any(self.vocabulary in shape for shape in shapes):
            return "vocabulary"
        return next((self.parts[name] for name in self.tracker.parents if name in self.parts), "other")


def stack_modules(root: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the modules of the stacks below ``root`` by their name in the tracker, with the name of the stack.

    These are the layers, and the modules with parameters inside them, because they may be called from outside.
    Modules that return their input are excluded: the tracker enters them in the backward pass and never leaves them.
    """
    stacks = ((name, module) for name, module in root.named_modules() if isinstance(module, nn.ModuleList))
    for stack, layers in stacks:
        for name, module in layers.named_modules():
            if module in set(layers) or list(module.parameters(recurse=False)):
                yield f"{type(root).__name__}.{stack}.{name}", stack.rpartition(".")[2]


class MemoryCounter(CountingMode):
    """Records the peak number of bytes alive, without parameters and real tensors (tokens, masks)."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__(root)
        self.alive = self.peak = 0
        self._known = weakref.WeakSet(parameter.untyped_storage() for parameter in root.parameters())

    def count(self, operation: Any, args: Any, kwargs: Any, result: Any) -> None:
        for tensor in tree_leaves(result):
            if isinstance(tensor, FakeTensor) and (storage := tensor.untyped_storage()) not in self._known:
                self._known.add(storage)
                self._change(storage.nbytes())
                weakref.finalize(storage, self._change, -storage.nbytes())

    def _change(self, size: int) -> None:
        self.alive += size
        self.peak = max(self.peak, self.alive)


class TrainingStep(nn.Module):
    """Forward pass of a training step as a module, so that all other modules have one root."""

    def __init__(self, system: System) -> None:
        super().__init__()
        self.system = system

    def forward(self, batch: Batch) -> Tensor:
        terms = self.system.loss(batch, torch.Generator().manual_seed(0))
        return torch.stack([term.factor * term.total for term in terms]).sum()


@contextmanager
def fake_parameters() -> Iterator[None]:
    """Make the parameters of all modules built in this context fake; buffers (noise tables, schedules) stay real."""
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)

    def replace(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or isinstance(parameter, FakeTensor):
            return parameter  # a fake one is registered again where modules share it
        with fake_mode:
            return nn.Parameter(torch.empty(parameter.shape))

    hook = register_module_parameter_registration_hook(replace)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()


@dataclass(frozen=True)
class StepCost:
    """Cost of one batch: FLOPs by part of the network, and peak bytes of activations."""

    flops: Counter[str]
    activations: int


def count_step(system: System, batch: Batch, vocab: Vocab, precision: str = "32-true") -> StepCost:
    """Count a forward and a backward pass of a system with :func:`fake_parameters`.

    FLOPs and memory need a pass each, because tracking modules keeps tensors alive.
    """
    root = TrainingStep(system)
    flops, memory = FlopCounter(root, vocab.size), MemoryCounter(root)
    # Gradients are freed at once: they are counted with the parameters.
    hooks = [p.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None)) for p in system.parameters()]
    for mode, tracker in ((flops, flops.tracker), (memory, nullcontext())):
        # Fake tensors are on the CPU, but the attention counted is that of a GPU.
        with mode, tracker, attention_backend(scaled_dot_product_attention):
            with torch.autocast("cpu", AUTOCAST_DTYPES.get(precision), enabled=precision in AUTOCAST_DTYPES):
                loss = root(batch)
            loss.backward()
    for hook in hooks:
        hook.remove()
    return StepCost(flops.total, memory.peak)


def count_parameter_memory(system: System, optimization: Optimization, averaged: bool) -> dict[str, int]:
    """Return the bytes of parameters, gradients, optimiser state and, if ``averaged``, EMA weights."""
    parameters = list(system.parameters())
    weights = sum(parameter.nbytes for parameter in parameters)
    optimizer, _ = optimization.build(system, 1, fused=False)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    values = (value for states in optimizer.state.values() for value in states.values())
    state = sum(value.nbytes for value in values if isinstance(value, Tensor))
    return {"weights": weights, "gradients": weights, "optimiser": state, "moving average": averaged * weights}
