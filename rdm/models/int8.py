"""Linear layers in 8-bit integers, for decoding on a CPU.

Weights are quantised once, with one scale per output; inputs are quantised on the fly, with one scale per call.
"""

import copy
import warnings
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized.dynamic import Linear
from torch.ao.quantization import per_channel_dynamic_qconfig

from rdm.models.layers import Embedding
from rdm.models.network import Restricted

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def in_int8(model: AnyModule) -> AnyModule:
    """Return a copy of ``model`` whose linear layers compute in int8.

    This includes the projection to the vocabulary.

    >>> in_int8(nn.Sequential(nn.Linear(4, 2)))[0](torch.zeros(1, 4)).shape
    torch.Size([1, 2])
    """
    model = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch announces that this moves to another package
        for module in list(model.modules()):
            if isinstance(module, Restricted):
                module.to_vocabulary = quantised_linear(  # type: ignore[method-assign]
                    module.output_weight(), module.output_bias
                ).__call__
            if not isinstance(module, Embedding):  # it uses the two halves of its weight matrix separately
                for name, layer in module.named_children():
                    if isinstance(layer, nn.Linear):
                        setattr(module, name, quantised_linear(layer.weight, layer.bias))
    return model


def quantised_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Return a layer ``x W^T + b`` with ``W [out, in]`` in int8."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias is not None, device=torch.device("meta"))
    layer.weight = nn.Parameter(weight)
    layer.bias = None if bias is None else nn.Parameter(bias)  # type: ignore[assignment]
    layer.qconfig = per_channel_dynamic_qconfig  # type: ignore[assignment]
    return Linear.from_float(layer)
