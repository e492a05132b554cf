"""Counts what would make the host wait for a GPU, on a machine without one.

A GPU works through a queue. Reading a value (``.item()``, ``bool(tensor)``), a result whose shape depends on values
(``nonzero``, indexing by a mask) and a copy from or to the host wait until the queue is empty. On a CPU these are
ordinary operations; two modes see them all: one below autograd, for operations, and one above it, for methods that read
the memory of a CPU tensor without an operation.

What is made without a device, and computed from nothing else, stays on the host: reading it costs nothing.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
VALUES = {aten._local_scalar_dense, aten.item, aten.is_nonzero}  # item(), int(), float(), bool()
SHAPES = {
    aten.nonzero,
    aten.masked_select,
    aten.equal,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten.bincount,
}
PUTS = {aten.index_put, aten.index_put_, aten._index_put_impl_}
READING = {Tensor.tolist, Tensor.cpu, Tensor.numpy, Tensor.__array__}
ON_HOST = "_on_host"  # attribute of tensors that would not be on a GPU
COPYING = {torch.tensor, torch.as_tensor, torch.from_numpy}
ROOT = str(Path(__file__).parent.parent / "rdm")


class _Operations(TorchDispatchMode):
    def __init__(self, count: "HostSynchronisations") -> None:
        super().__init__()
        self.add = count.add

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, packet = kwargs or {}, func.overloadpacket
        if packet in VALUES:
            self.add("value")
        elif packet in SHAPES:
            self.add(packet.__name__)
        elif packet is aten.repeat_interleave and isinstance(args[0], Tensor) and kwargs.get("output_size") is None:
            self.add("repeat_interleave")
        elif packet is aten.index and _has_mask(args[1]):
            self.add("index by a mask")
        elif packet in PUTS and _has_mask(args[1]) and args[2].numel() != 1:  # a single value is a masked fill
            self.add("index_put by a mask")
        return func(*args, **kwargs)


class _Functions(TorchFunctionMode):
    def __init__(self, count: "HostSynchronisations") -> None:
        super().__init__()
        self.count = count

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        copied = func in COPYING and not tensors
        on_host = all(hasattr(each, ON_HOST) for each in tensors) if tensors else kwargs.get("device") is None
        if on_host:
            with self.count.paused():
                result = func(*args, **kwargs)
            for each in tree_leaves(result):
                if isinstance(each, Tensor):
                    setattr(each, ON_HOST, True)
            return result
        if copied or func in READING:
            self.count.add(func.__name__)
        return func(*args, **kwargs)


class HostSynchronisations(ExitStack):
    """Counts device synchronisations inside the context, by kind and by the line of the package that causes them.

    >>> with HostSynchronisations() as found:
    ...     x = torch.ones(3, device="cpu")
    ...     _ = x[x > 0], bool(x.any()), x.tolist()
    >>> found.total, sorted(found.kinds)
    (3, ['index by a mask', 'tolist', 'value'])
    >>> with HostSynchronisations() as found:
    ...     rate = float(1 - torch.tensor(0.5))
    >>> found.total
    0
    """

    def __init__(self) -> None:
        super().__init__()
        self.kinds: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()
        self.counting = True

    def __enter__(self) -> "HostSynchronisations":
        self.enter_context(_Operations(self))
        self.enter_context(_Functions(self))
        return self

    @property
    def total(self) -> int:
        return self.kinds.total()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing inside the context."""
        before, self.counting = self.counting, False
        yield
        self.counting = before

    def add(self, kind: str) -> None:
        if not self.counting:
            return
        self.kinds[kind] += 1
        ours = [frame for frame in traceback.extract_stack() if frame.filename.startswith(ROOT)]
        place = f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno}" if ours else "elsewhere"
        self.lines[f"{kind} at {place}"] += 1


def _has_mask(indices: Any) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
