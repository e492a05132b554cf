"""Indices and random subsets of masks, without a device synchronisation."""

from torch import Tensor


def true_index(mask: Tensor, count: int) -> Tensor:
    """Return the indices ``[count]`` of the true values of a flattened mask, in order.

    ``count`` is the number of true values. Because it is given, a GPU need not be waited for, as with
    ``mask.nonzero()`` or indexing by a mask.

    >>> import torch
    >>> true_index(torch.tensor([[False, True], [True, False]]), 2)
    tensor([1, 2])
    """
    return mask.flatten().byte().argsort(descending=True, stable=True)[:count]


def random_subset(uniform: Tensor, among: Tensor, count: Tensor) -> Tensor:
    """Return a mask ``[..., N]`` of the ``count [...]`` positions of ``among`` with the lowest ``uniform`` number.

    If the numbers are drawn independently from ``U(0, 1)``, all subsets of this size are equally likely.

    >>> import torch
    >>> random_subset(torch.tensor([0.1, 0.7, 0.3]), torch.tensor([False, True, True]), torch.tensor(1))
    tensor([False, False,  True])
    """
    rank = uniform.masked_fill(~among, 2.0).argsort(-1).argsort(-1)
    return (rank < count[..., None]) & among
