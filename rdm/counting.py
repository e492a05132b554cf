"""What a training step costs, counted without making it.

The step is the one training makes: real tokens are noised and batched, but the weights are shapes without numbers. So a
model of any size is counted in seconds on any machine, whatever it is made of.
"""

import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, register_flop_formula, sdpa_backward_flop_count, sdpa_flop_count
from torch.utils.module_tracker import ModuleTracker

from rdm.data.batching import Batch
from rdm.models.layers import attention_backend
from rdm.systems.base import System
from rdm.vocab import Vocab

aten = torch.ops.aten
HALF = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@register_flop_formula(aten._scaled_dot_product_flash_attention_for_cpu)
def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


@register_flop_formula(aten._scaled_dot_product_flash_attention_for_cpu_backward)
def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


class Counted(TorchDispatchMode, ABC):
    """Lets tensors without numbers be selected by a mask: how many places it has is known, because the mask is real.

    Dropout draws without a generator, and gets no numbers either; noise has one.
    """

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.shapes = cast(FakeTensor, next(root.parameters())).fake_mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_):
            args = (args[0], list(_places(args[1])), *args[2:])
        with self.shapes if func is aten.rand.default else nullcontext():
            result = func(*args, **(kwargs or {}))
        self.count(func.overloadpacket, args, kwargs or {}, result)
        return result

    @abstractmethod
    def count(self, operation: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Look at an operation that was made."""


def _places(indices: Iterable[Tensor | None]) -> Iterator[Tensor | None]:
    for index in indices:
        if index is not None and index.dtype == torch.bool:
            yield from index.nonzero().unbind(1)
        else:
            yield index


class Operations(Counted):
    """Counts multiplications and additions in matrix products, by part of the network.

    A part is a stack of layers, by the name of its list (``encoder``, ``decoder``, ``blocks``), or the ``vocabulary``:
    every product with one of its dimensions. What is left is ``other``: embeddings, time, length. (The gradient of the
    target embedding may be counted with the decoder, which autograd leaves later than that.)
    """

    def __init__(self, root: nn.Module, vocabulary: int) -> None:
        super().__init__(root)
        self.tracker, self.vocabulary = ModuleTracker(), vocabulary
        self.parts = dict(parts(root))
        self.total: Counter[str] = Counter()

    def count(self, operation: Any, args: Any, kwargs: Any, result: Any) -> None:
        if operation in flop_registry:
            shapes = [tensor.shape for tensor in tree_leaves(args) if isinstance(tensor, Tensor)]
            self.total[self._part(shapes)] += flop_registry[operation](*args, **kwargs, out_val=result)

    def _part(self, shapes: list[torch.Size]) -> str:
        if any(self.vocabulary in shape for shape in shapes):
            return "vocabulary"
        return next((self.parts[name] for name in self.tracker.parents if name in self.parts), "other")


def parts(root: nn.Module) -> Iterator[tuple[str, str]]:
    """Modules of the stacks below ``root`` as the tracker calls them, each with the name of its stack.

    Layers, and inside them what has weights of its own (it may be called from elsewhere). A module that returns what it
    is given is none of these: the tracker enters it on the way back and never leaves it.
    """
    stacks = ((name, module) for name, module in root.named_modules() if isinstance(module, nn.ModuleList))
    for stack, layers in stacks:
        for name, module in layers.named_modules():
            if module in set(layers) or list(module.parameters(recurse=False)):
                yield f"{type(root).__name__}.{stack}.{name}", stack.rpartition(".")[2]


class Memory(Counted):
    """The most bytes alive at any time; parameters are not counted, nor what has numbers (tokens, masks)."""

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


class Step(nn.Module):
    """A training step as a module, so that all others stand below one root."""

    def __init__(self, system: System) -> None:
        super().__init__()
        self.system = system

    def forward(self, batch: Batch) -> Tensor:
        terms = self.system.loss(batch, torch.Generator().manual_seed(0))
        return torch.stack([term.factor * term.total for term in terms]).sum()


def without_numbers(system: DictConfig) -> System:
    """A system whose parameters have shapes only; its tables (noise, schedules) are real."""
    shapes = FakeTensorMode(allow_non_fake_inputs=True)

    def replace(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        with shapes:
            return parameter if parameter is None else nn.Parameter(torch.empty(parameter.shape))

    hook = register_module_parameter_registration_hook(replace)  # type: ignore[arg-type]
    try:
        return instantiate(system)
    finally:
        hook.remove()


@dataclass(frozen=True)
class Cost:
    """Of one batch: operations by part of the network, and bytes of what forward and backward pass keep."""

    flops: Counter[str]
    activations: int


def measure(system: System, batch: Batch, vocab: Vocab, precision: str = "32-true") -> Cost:
    """A forward and a backward pass, one for each count: following modules keeps tensors alive."""
    root = Step(system)
    operations, memory = Operations(root, vocab.size), Memory(root)
    # Gradients are let go at once: they are counted with the weights.
    hooks = [p.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None)) for p in system.parameters()]
    for mode, following in ((operations, operations.tracker), (memory, nullcontext())):
        # Fake tensors are on the CPU, but the attention counted is that of a GPU.
        with mode, following, attention_backend(scaled_dot_product_attention):
            with torch.autocast("cpu", HALF.get(precision), enabled=precision in HALF):
                loss = root(batch)
            loss.backward()
    for hook in hooks:
        hook.remove()
    return Cost(operations.total, memory.peak)
