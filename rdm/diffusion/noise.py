"""Noise distributions ``q_noise``: what a noised token turns into.

A noise knows the probability of each id, which ids of the clean text it may replace (these are the ids that the model
learns and predicts), and how to draw samples without a vocabulary-sized tensor per token.

    >>> noise = Absorbing(Vocab(size=8))
    >>> noise.sample(torch.tensor([[5, 6, 7]]))
    tensor([[1, 1, 1]])
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rdm.describe import Described
from rdm.errors import require
from rdm.vocab import Vocab


def draw_uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw uniform numbers in [0, 1) with the shape and device of ``like``, in float64.

    The numbers are those of ``torch.rand``, which ``torch.compile`` cannot trace for open shapes with a generator.
    """
    return torch.empty(like.shape, dtype=torch.float64, device=like.device).uniform_(generator=generator)


class Noise(Described, nn.Module):
    """A categorical distribution over ids.

    Args:
        probs: ``[V]``, the probability of every id.
        learnable: ``[V]`` bool, the ids that are noised, learned and predicted; all others stay as they are.
    """

    unit = "ordinary"
    """The count that a loss is divided by: ``tokens`` if special symbols are noised too (see ``System.counts``)."""

    probs: Tensor
    cdf: Tensor
    learnable: Tensor

    def __init__(self, probs: Tensor, learnable: Tensor) -> None:
        super().__init__()
        # Float64, so that no id of a large vocabulary is lost in the cumulative sum.
        self.register_buffer("probs", probs.double())
        self.register_buffer("cdf", self._cumulate(probs.double()))
        self.register_buffer("learnable", learnable)

    @staticmethod
    def _cumulate(probs: Tensor) -> Tensor:
        cdf = probs.cumsum(0)
        return cdf / cdf[-1]

    def fit(self, target_counts: Callable[[], Tensor]) -> None:
        """Fit the noise to the training data; ``target_counts()`` computes how often each id occurs, ``[V]``.

        Most noises need no data and never call it.
        """

    def prob(self, tokens: Tensor) -> Tensor:
        """Return ``q_noise(u = tokens)``, float64, in the shape of ``tokens``."""
        return self.probs[tokens]

    def sample(self, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw one id for every element of ``like`` by inverting the cumulative distribution, in O(n log V)."""
        uniform = draw_uniform(like, generator)
        return torch.searchsorted(self.cdf, uniform, right=True)


class Absorbing(Noise):
    """All probability mass on ``<mask>``.

    Args:
        vocab: size and special ids.
        noise_specials: noise and learn ``<bos>`` and ``<eos>`` like other tokens.

    >>> Absorbing(Vocab(size=8)).prob(torch.tensor([1, 5]))
    tensor([1., 0.], dtype=torch.float64)
    """

    def __init__(self, vocab: Vocab, noise_specials: bool = True) -> None:
        probs = torch.zeros(vocab.size)
        probs[vocab.mask] = 1.0
        super().__init__(probs, vocab.select(without=(vocab.pad, vocab.mask) if noise_specials else vocab.specials))
        self.unit = "tokens" if noise_specials else "ordinary"


class Uniform(Noise):
    """Equal probability for every ordinary id (multinomial diffusion).

    >>> Uniform(Vocab(size=9)).prob(torch.tensor([1, 5]))
    tensor([0.0000, 0.2500], dtype=torch.float64)
    """

    def __init__(self, vocab: Vocab) -> None:
        ordinary = vocab.select(without=vocab.specials)
        super().__init__(ordinary.double() / ordinary.sum(), ordinary)


class Unigram(Noise):
    """Ordinary ids with probability proportional to ``count ** (1 / temperature)``.

    Counts are those of the training targets. The probabilities are fitted to the data (:meth:`fit`) and saved in the
    checkpoint.

    >>> noise = Unigram(Vocab(size=7), temperature=1.0)
    >>> noise.fit(lambda: torch.tensor([0, 0, 0, 0, 0, 30, 10]))
    >>> noise.prob(torch.tensor([5, 6]))
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """

    def __init__(self, vocab: Vocab, temperature: float = 1.5) -> None:
        require(temperature > 0, f"diffusion.noise.temperature must be above 0, got {temperature}")
        super().__init__(torch.zeros(vocab.size), vocab.select(without=vocab.specials))
        self.temperature = temperature
        self._has_counts = False  # known on the host: asking the device in every call would synchronise

    def fit(self, target_counts: Callable[[], Tensor]) -> None:
        # An id that never occurs counts as one occurrence: the validation text may contain it.
        weights = torch.where(self.learnable, target_counts().double().clamp(min=1) ** (1 / self.temperature), 0.0)
        self.probs.copy_(weights / weights.sum())
        self.cdf.copy_(self._cumulate(self.probs))

    def sample(self, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self._has_counts = self._has_counts or bool(self.probs.any())
        require(self._has_counts, "unigram noise has no counts yet: call fit or load a checkpoint")
        return super().sample(like, generator)


class Mixture(Noise):
    """Probability ``mask_share`` on ``<mask>``, the rest spread evenly over the ordinary ids.

    >>> Mixture(Vocab(size=9), mask_share=0.6).prob(torch.tensor([1, 5]))
    tensor([0.6000, 0.1000], dtype=torch.float64)
    """

    def __init__(self, vocab: Vocab, mask_share: float = 0.5) -> None:
        require(0 <= mask_share <= 1, f"diffusion.noise.mask_share must lie in [0, 1], got {mask_share}")
        ordinary = vocab.select(without=vocab.specials)
        probs = (1 - mask_share) * ordinary.double() / ordinary.sum()
        probs[vocab.mask] = mask_share
        super().__init__(probs, ordinary)
