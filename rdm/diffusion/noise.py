"""Noise distributions ``q_noise``: what a corrupted token turns into.

A noise knows three things: the probability of each id, which ids of the clean text it may replace (and so which ids the
model learns and predicts), and how to draw from itself without a vocabulary-sized tensor per token.

    >>> noise = Absorbing(Vocab(size=8))
    >>> noise.sample(torch.tensor([[5, 6, 7]]))
    tensor([[1, 1, 1]])
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rdm.errors import UserError, require
from rdm.vocab import Vocab


class Noise(nn.Module):
    """A categorical distribution over ids.

    Args:
        probs: ``[V]``, the probability of every id.
        learnable: ``[V]`` bool, the ids that are noised, learned and predicted; all others stay as they are.
    """

    probs: Tensor
    cdf: Tensor
    learnable: Tensor

    def __init__(self, probs: Tensor, learnable: Tensor) -> None:
        super().__init__()
        # Buffers follow the model to its device; float64 so that no id of a large vocabulary is lost in the sum.
        self.register_buffer("probs", probs.double())
        self.register_buffer("cdf", self._cumulate(probs.double()))
        self.register_buffer("learnable", learnable)

    @staticmethod
    def _cumulate(probs: Tensor) -> Tensor:
        cdf = probs.cumsum(0)
        return cdf / cdf[-1]

    def fit(self, target_counts: Callable[[], Tensor]) -> None:
        """Take what is needed from the id counts ``[V]`` of the training targets; most noises do not even ask."""

    def prob(self, tokens: Tensor) -> Tensor:
        """``q_noise(u = tokens)``, float64, in the shape of ``tokens``."""
        return self.probs[tokens]

    def sample(self, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One draw for every element of ``like``, by inverting the cumulative distribution: O(n log V)."""
        uniform = torch.rand(like.shape, dtype=torch.float64, device=like.device, generator=generator)
        return torch.searchsorted(self.cdf, uniform, right=True)


class Absorbing(Noise):
    """All mass on ``<mask>``. ``<bos>`` and ``<eos>`` are noised and learned unless ``noise_specials`` is off."""

    def __init__(self, vocab: Vocab, noise_specials: bool = True) -> None:
        probs = torch.zeros(vocab.size)
        probs[vocab.mask] = 1.0
        super().__init__(probs, vocab.select(without=(vocab.pad, vocab.mask) if noise_specials else vocab.specials))


class Uniform(Noise):
    """Every ordinary id alike (multinomial diffusion)."""

    def __init__(self, vocab: Vocab) -> None:
        ordinary = vocab.select(without=vocab.specials)
        super().__init__(ordinary.double() / ordinary.sum(), ordinary)


class Unigram(Noise):
    """Ordinary ids in proportion to ``count ** (1 / temperature)`` in the training targets.

    The counts come from the data (:meth:`fit`) and travel with the checkpoint.
    """

    def __init__(self, vocab: Vocab, temperature: float = 1.5) -> None:
        require(temperature > 0, f"the temperature of unigram noise must be above 0, got {temperature}")
        super().__init__(torch.zeros(vocab.size), vocab.select(without=vocab.specials))
        self.temperature = temperature

    def fit(self, target_counts: Callable[[], Tensor]) -> None:
        # An id never seen counts as seen once: it may still turn up in the validation text.
        weights = torch.where(self.learnable, target_counts().double().clamp(min=1) ** (1 / self.temperature), 0.0)
        self.probs.copy_(weights / weights.sum())
        self.cdf.copy_(self._cumulate(self.probs))

    def sample(self, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if not self.probs.any():
            raise UserError("unigram noise has no counts yet: call fit or load a checkpoint")
        return super().sample(like, generator)


class Mixture(Noise):
    """``mask_share`` of the mass on ``<mask>``, the rest spread over the ordinary ids."""

    def __init__(self, vocab: Vocab, mask_share: float = 0.5) -> None:
        require(0 <= mask_share <= 1, f"mask_share must lie in [0, 1], got {mask_share}")
        ordinary = vocab.select(without=vocab.specials)
        probs = (1 - mask_share) * ordinary.double() / ordinary.sum()
        probs[vocab.mask] = mask_share
        super().__init__(probs, ordinary)
