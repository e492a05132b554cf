"""Initial weights from another run: all tensors that fit, also of another kind of system."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rdm.errors import require

NETWORK = "network."
"""Systems wrap the same networks differently; names are compared from this part on."""


@dataclass(frozen=True)
class TakenWeights:
    """Which parameters of a model were initialised from the weights of another.

    Attributes:
        taken: names of the parameters that were.
        missing: names of those that the other model does not have.
        reshaped: names of those that have another shape there.
        unused: names of the weights that this model does not have.
        values: number of values taken.
    """

    taken: list[str]
    missing: list[str]
    reshaped: list[str]
    unused: list[str]
    values: int

    def lines(self) -> list[str]:
        """Return a summary, and one line per kind of tensor that was not taken."""
        total = len(self.taken) + len(self.missing) + len(self.reshaped)
        lines = [f"{len(self.taken)} of {total} tensors taken ({self.values:,} parameters)"]
        for text, names in (
            ("newly initialised, not in that run", self.missing),
            ("newly initialised, of another shape there", self.reshaped),
            ("in that run only", self.unused),
        ):
            if names:
                lines.append(f"  {text}: {', '.join(names)}")
        return lines


@torch.no_grad()
def take_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> TakenWeights:
    """Copy the weights that fit into ``model``, by name and shape.

    Buffers are not copied: they are tables that follow from the configuration.

    Args:
        model: the model to initialise.
        weights: state dict of another model.
        origin: where they come from, for the message.

    >>> first, second = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3)), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 4))
    >>> print(*take_weights(first, second.state_dict(), "other").lines(), sep="\\n")
    2 of 4 tensors taken (6 parameters)
      newly initialised, of another shape there: 1.weight, 1.bias
    """
    found = {short_name(name): (name, value) for name, value in weights.items()}
    taken, missing, reshaped, values = [], [], [], 0
    for name, parameter in model.named_parameters():
        _, value = found.get(short_name(name), (None, None))
        if value is None:
            missing.append(name)
        elif value.shape != parameter.shape:
            reshaped.append(name)
        else:
            parameter.copy_(value)
            taken.append(name)
            values += value.numel()
    known = {short_name(name) for name in model.state_dict()}
    unused = [name for short, (name, _) in found.items() if short not in known]
    require(bool(taken), f"init: no tensor of {origin} fits this model; choose the model, or a run of the same network")
    return TakenWeights(taken, missing, reshaped, unused, values)


def short_name(name: str) -> str:
    """Return the name of a tensor within its network.

    >>> short_name("denoiser.network.embedding.weight")
    'network.embedding.weight'
    """
    _, separator, inner = f".{name}".partition(f".{NETWORK}")
    return NETWORK + inner if separator else name
