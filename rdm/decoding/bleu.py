"""Vectorised sentence BLEU, equal to NLTK's ``sentence_bleu`` with smoothing method 4.

    BLEU = min(1, exp(1 - r / h)) * exp(1/4 * sum_n log p_n),   p_n = matches_n / max(1, h - n + 1)

with ``h`` and ``r`` the lengths of hypothesis and reference. The k-th order without a match counts
``log(h) / (5 * 2^k)`` matches. Orders that still have none (``h = 1``) are excluded from the sum. BLEU is 0 without a
common word.

>>> smoothed_bleu(torch.tensor([4, 3, 2, 1]), lengths=torch.tensor(4), reference_lengths=torch.tensor(4)).item()
1.0
"""

import numpy as np
import torch
from torch import Tensor

ORDERS = 4


def smoothed_bleu(matches: Tensor, lengths: Tensor, reference_lengths: Tensor) -> Tensor:
    """Return BLEU ``[...]``, float64, from clipped n-gram matches ``[..., 4]`` and lengths ``[...]``."""
    orders = torch.arange(1, ORDERS + 1, device=matches.device)
    h = lengths.double()[..., None]
    missing = matches == 0
    numerators = torch.where(missing, h.log() / (5 * 2.0 ** missing.cumsum(-1)), matches.double())
    precisions = numerators / (h - orders + 1).clamp(min=1)
    log_mean = torch.where(precisions > 0, precisions, 1.0).log().mean(-1)
    brevity = (1 - reference_lengths / lengths.double()).clamp(max=0)
    return torch.where(missing[..., 0], 0.0, (log_mean + brevity).exp())


def pairwise_bleu(tokens: Tensor, text: Tensor) -> Tensor:
    """Return BLEU ``[B, m, m]`` of every pair among the ``m`` candidates of a source, the first as hypothesis.

    If every n-gram is numbered by its earlier occurrences in the sentence, clipped matches are the size of a set
    intersection, so n-grams need not be counted individually.

    Args:
        tokens: ``[B, m, N]`` ids.
        text: ``[B, m, N]`` bool, the ids that are part of the text.
    """
    # NumPy, because the arrays are small and the synchronisation of torch's threads would dominate.
    ids, real = tokens.cpu().numpy(), text.cpu().numpy()
    lengths = real.sum(-1)
    packed = np.take_along_axis(ids, (~real).argsort(axis=-1, kind="stable"), -1)[..., : lengths.max()]
    size = int(packed.max(initial=0)) + 1
    grams, matches = np.zeros_like(packed), []
    for order in range(1, ORDERS + 1):
        # An n-gram is an (n-1)-gram and a token, renumbered so that its id stays small.
        width = max(packed.shape[-1] - order + 1, 0)
        first, last = grams[..., :width], packed[..., order - 1 :]
        grams = np.unique(first * size + last, return_inverse=True)[1].reshape(last.shape)
        valid = np.arange(width) < (lengths - order + 1)[..., None]
        before = np.tril(grams[..., :, None] == grams[..., None, :], -1).sum(-1)
        keys = np.where(valid, grams * (width + 1) + before, -1)
        common = [
            ((keys[:, i, None, :, None] == keys[:, :, None, :]).any(-1) & valid[:, i, None]).sum(-1)
            for i in range(keys.shape[1])
        ]
        matches.append(np.stack(common, 1))
    counts, sizes = torch.from_numpy(np.stack(matches, -1)), torch.from_numpy(lengths)
    return smoothed_bleu(counts, sizes[:, :, None], sizes[:, None, :]).to(tokens.device)
