"""Sentence BLEU, as NLTK's ``sentence_bleu`` with smoothing method 4 gives it, for many pairs at once.

    BLEU = min(1, exp(1 - r / h)) * exp(1/4 * sum_n log p_n),   p_n = matches_n / max(1, h - n + 1)

with ``h`` and ``r`` the lengths of hypothesis and reference. Where an order has no match, the k-th such order counts
``log(h) / (5 * 2^k)`` matches; orders that still have none (``h = 1``) are left out of the sum. No common word is 0.
"""

import numpy as np
import torch
from torch import Tensor

ORDERS = 4


def smoothed_bleu(matches: Tensor, lengths: Tensor, reference_lengths: Tensor) -> Tensor:
    """BLEU ``[...]``, float64, from clipped n-gram matches ``[..., 4]`` and lengths ``[...]``."""
    orders = torch.arange(1, ORDERS + 1, device=matches.device)
    h = lengths.double()[..., None]
    missing = matches == 0
    numerators = torch.where(missing, h.log() / (5 * 2.0 ** missing.cumsum(-1)), matches.double())
    precisions = numerators / (h - orders + 1).clamp(min=1)
    log_mean = torch.where(precisions > 0, precisions, 1.0).log().mean(-1)
    brevity = (1 - reference_lengths / lengths.double()).clamp(max=0)
    return torch.where(missing[..., 0], 0.0, (log_mean + brevity).exp())


def pairwise_bleu(tokens: Tensor, text: Tensor) -> Tensor:
    """``[B, m, m]``: of every two among the ``m`` candidates of a source, the first as hypothesis.

    Clipped matches are a set intersection once every n-gram carries how often it has come before in its sentence, so
    no n-gram is counted one by one.

    Args:
        tokens: ``[B, m, N]`` ids.
        text: ``[B, m, N]`` bool, the ids that count.
    """
    # NumPy, because these arrays are small: on a busy machine torch's threads would mostly wait for each other.
    ids, real = tokens.cpu().numpy(), text.cpu().numpy()
    lengths = real.sum(-1)
    packed = np.take_along_axis(ids, (~real).argsort(axis=-1, kind="stable"), -1)[..., : lengths.max()]
    size = int(packed.max(initial=0)) + 1
    grams, matches = np.zeros_like(packed), []
    for order in range(1, ORDERS + 1):
        # An n-gram is the (n-1)-gram before it and a token, renumbered so that the ids stay small.
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
