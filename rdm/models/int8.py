"""Linear layers in 8-bit integers, for decoding on a CPU.

Weights are rounded once, a scale for each output; inputs are rounded on the fly, a scale for each call. Training knows
nothing of it.
"""

import copy
import warnings

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized.dynamic import Linear
from torch.ao.quantization import per_channel_dynamic_qconfig

from rdm.models.layers import Embedding, Restricted
from rdm.systems.base import System


def in_int8(system: System) -> System:
    """A copy of ``system`` whose linear layers, the projection to the vocabulary among them, compute in int8."""
    system = copy.deepcopy(system)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch means to move this to a package of its own
        for module in list(system.modules()):
            if isinstance(module, Restricted):
                module.to_vocabulary = rounded(  # type: ignore[method-assign]
                    module.output_weight(), module.output_bias
                ).__call__
            if not isinstance(module, Embedding):  # it computes with the halves of its weights
                for name, layer in module.named_children():
                    if isinstance(layer, nn.Linear):
                        setattr(module, name, rounded(layer.weight, layer.bias))
    return system


def rounded(weight: Tensor, bias: Tensor | None) -> Linear:
    """``x W^T + b`` with ``W [out, in]`` in int8."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias is not None, device=torch.device("meta"))
    layer.weight = nn.Parameter(weight)
    layer.bias = None if bias is None else nn.Parameter(bias)  # type: ignore[assignment]
    layer.qconfig = per_channel_dynamic_qconfig  # type: ignore[assignment]
    return Linear.from_float(layer)
