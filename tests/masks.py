"""Records attention masks."""

from typing import Any

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class Masks(TorchFunctionMode):
    """Collects the ``attn_mask`` of every call of ``scaled_dot_product_attention``."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor | None] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            self.seen.append((kwargs or {}).get("attn_mask"))
            assert len(args) == 3
        return func(*args, **(kwargs or {}))
