"""Edits of token sequences by deletions and insertions: alignment by dynamic programming, and their application.

All functions work on padded batches. The dynamic programming loops over positions, vectorised over the batch.
"""

import torch
from torch import Tensor
from torch.nn import functional


def align(first: Tensor, second: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Align two batches of sequences with the fewest deletions and insertions (a longest common subsequence).

        L[i, j] = L[i-1, j-1] + 1  if first_i = second_j,  else  max(L[i-1, j], L[i, j-1])

    Args:
        first, second: ``[B, N]`` and ``[B, M]``, padded on the right.
        pad: id of the padding.

    Returns:
        Masks ``[B, N]`` and ``[B, M]`` of the tokens on the alignment; the k-th of one is aligned to the k-th of the
        other. Tokens of ``first`` outside it are deleted, those of ``second`` inserted.

    >>> align(torch.tensor([[5, 6, 7]]), torch.tensor([[6, 8, 7]]), pad=0)
    (tensor([[False,  True,  True]]), tensor([[ True, False,  True]]))
    """
    rows, length, width = len(first), first.shape[1], second.shape[1]
    equal = (first[..., None] == second[:, None]) & (first != pad)[..., None] & (second != pad)[:, None]
    table = torch.zeros(rows, length + 1, width + 1, dtype=torch.long, device=first.device)
    for column in range(length):
        before = table[:, column]
        best = torch.maximum(before[:, 1:], before[:, :-1] + equal[:, column])
        table[:, column + 1, 1:] = best.cummax(1).values  # L[i, j] is at least L[i, j-1]
    kept, aligned = torch.zeros_like(first, dtype=torch.bool), torch.zeros_like(second, dtype=torch.bool)
    row = torch.arange(rows, device=first.device)
    i, j = torch.full_like(row, length), torch.full_like(row, width)
    for _ in range(length + width):
        above, left = (i - 1).clamp(min=0), (j - 1).clamp(min=0)
        inside = (i > 0) & (j > 0)
        match = equal[row, above, left] & inside
        kept[row, above] |= match
        aligned[row, left] |= match
        up = inside & ~match & (table[row, above, j] >= table[row, i, left])
        sideways = inside & ~match & ~up
        i, j = i - (match | up).long(), j - (match | sideways).long()
    return kept, aligned


def keep_tokens(tokens: Tensor, kept: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Delete the tokens ``[R, N]`` that are not ``kept [R, N]``.

    Returns:
        The shorter rows ``[R, N']`` and the column ``[R, N']`` that each of their tokens had; -1 at padding.

    >>> keep_tokens(torch.tensor([[5, 6, 7]]), torch.tensor([[True, False, True]]), pad=0)
    (tensor([[5, 7]]), tensor([[0, 2]]))
    """
    kept = kept & (tokens != pad)
    width = max(int(kept.sum(1).max()), 1)
    columns = (~kept).long().argsort(dim=1, stable=True)[:, :width]
    real = kept.gather(1, columns)
    return tokens.gather(1, columns).masked_fill(~real, pad), columns.masked_fill(~real, -1)


def insert_placeholders(
    tokens: Tensor, counts: Tensor, longest: int, placeholder: int, pad: int
) -> tuple[Tensor, Tensor]:
    """Insert ``counts [R, N - 1]`` placeholders between neighbouring ``tokens [R, N]``, up to ``longest`` in a row.

    If a row would be longer than that, its last placeholders are left out.

    Returns:
        The longer rows ``[R, N']`` and the column ``[R, N']`` that each token had; -1 at placeholders and padding.

    >>> insert_placeholders(torch.tensor([[2, 5, 3]]), torch.tensor([[1, 0]]), 9, placeholder=1, pad=0)
    (tensor([[2, 1, 5, 3]]), tensor([[ 0, -1,  1,  2]]))
    """
    real = tokens != pad
    sizes = real.sum(1, keepdim=True)
    # Cumulative and limited, so that early gaps are served first.
    limit = (longest - sizes).clamp(min=0)
    inserted = torch.minimum((counts * real[:, 1:]).cumsum(1), limit)
    offset = functional.pad(inserted, (1, 0))  # placeholders before each token
    total = sizes.squeeze(1) + offset[:, -1]
    width = int(total.max())
    columns = torch.arange(width, device=tokens.device)
    longer = torch.where(columns < total[:, None], placeholder, pad).to(tokens.dtype)
    origin = torch.full_like(longer, -1)
    target = torch.arange(tokens.shape[1], device=tokens.device) + offset
    row, column = real.nonzero(as_tuple=True)
    longer[row, target[real]] = tokens[real]
    origin[row, target[real]] = column
    return longer, origin


def count_insertions(aligned: Tensor, real: Tensor, width: int) -> Tensor:
    """Count the tokens that are missing between neighbours of a shorter text.

    Args:
        aligned: ``[B, M]`` bool, the tokens of the longer text that the shorter one has; the first is one of them.
        real: ``[B, M]`` bool, false at the padding of the longer text.
        width: number of columns ``N`` of the shorter text.

    Returns:
        ``[B, N - 1]``, the number of tokens missing after each token of the shorter text.

    >>> count_insertions(torch.tensor([[True, False, True]]), torch.ones(1, 3, dtype=torch.bool), width=2)
    tensor([[1]])
    """
    gap = aligned.long().cumsum(1) - 1
    counts = torch.zeros(len(aligned), width, dtype=torch.long, device=aligned.device)
    return counts.scatter_add_(1, gap.clamp(0, width - 1), (real & ~aligned).long())[:, :-1]
