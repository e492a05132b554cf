"""Keys and values of earlier calls, for networks that are run on some positions of a text only."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rdm.models.layers import Extend, KeyValue


@dataclass(frozen=True)
class Part:
    """The positions a network is run on: ``n`` columns of each row.

    Rows may need different numbers of them; the columns of a row that are not ``needed`` fill it up to ``n``.
    """

    columns: Tensor  # [R, n] distinct in each row
    needed: Tensor  # [R, n] bool

    @classmethod
    def of(cls, mask: Tensor) -> "Part":
        """Return the positions where ``mask [R, N]`` is true, in ascending order.

        >>> Part.of(torch.tensor([[False, True, True], [False, False, True]])).columns
        tensor([[1, 2],
                [2, 0]])
        """
        width = int(mask.sum(1).max())
        columns = (~mask).long().argsort(dim=1, stable=True)[:, :width]
        return cls(columns, mask.gather(1, columns))

    def take(self, x: Tensor) -> Tensor:
        """Return ``x [R, N, ...]`` at these positions, ``[R, n, ...]``."""
        columns = self.columns.view(*self.columns.shape, *[1] * (x.dim() - 2))
        return x.gather(1, columns.expand(*self.columns.shape, *x.shape[2:]))


class KeyValueCache:
    """Keys and values of every layer, of which later calls replace some positions.

    >>> cache, full = KeyValueCache(), torch.zeros(1, 1, 3, 2)
    >>> _ = cache.extend(layer=0, part=Part.of(torch.ones(1, 3, dtype=torch.bool)))((full, full))
    >>> part = Part.of(torch.tensor([[False, True, False]]))
    >>> cache.extend(layer=0, part=part)((torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2)))[0][0, 0, :, 0]
    tensor([0., 1., 0.])
    """

    def __init__(self) -> None:
        self.layers: dict[int, KeyValue] = {}

    def extend(self, layer: int, part: Part) -> Extend:
        """Return the function that maps the keys and values of ``part`` to those of all positions."""

        def replace(key_value: KeyValue) -> KeyValue:
            if layer in self.layers:
                kept, (key, value) = self.layers[layer], key_value
                key_value = (_replaced(kept[0], key, part), _replaced(kept[1], value, part))
            self.layers[layer] = key_value
            return key_value

        return replace


def _replaced(kept: Tensor, new: Tensor, part: Part) -> Tensor:
    """Return ``kept [R, H, N, D]`` with ``new [R, H, n, D]`` at the needed positions of ``part``."""
    index = part.columns[:, None, :, None].expand_as(new)
    return kept.scatter(2, index, torch.where(part.needed[:, None, :, None], new, kept.gather(2, index)))
