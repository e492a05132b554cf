"""Proposals: a token ``x0_hat`` and its score at every active position, from the logits of the denoiser.

>>> import torch
>>> from rdm.decoding.proposal import Proposal
>>> tokens, scores = Proposal()(torch.tensor([[0.0, 2.0, 1.0]]))
>>> tokens, scores.exp()
(tensor([1]), tensor([0.6652]))
"""

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import rows_at_once
from rdm.describe import Described
from rdm.errors import require


class Proposal(Described):
    """Takes the argmax at temperature 0, otherwise samples from the nucleus of mass ``top_p`` at that temperature.

    Args:
        temperature: temperature of the first iteration.
        final_temperature: temperature of the last iteration, with linear interpolation; None keeps it constant.
        top_p: mass of the nucleus; 1 samples from the whole distribution.
    """

    def __init__(self, temperature: float = 0.0, final_temperature: float | None = None, top_p: float = 1.0) -> None:
        require(temperature >= 0, f"decoding.temperature must be 0 (argmax) or greater, got {temperature}")
        require(0 < top_p <= 1, f"decoding.top_p must lie in (0, 1], got {top_p}")
        self.temperature = temperature
        self.final_temperature = temperature if final_temperature is None else final_temperature
        require(
            self.final_temperature >= 0, f"decoding.final_temperature must not be negative, got {final_temperature}"
        )
        self.top_p = top_p

    def temperature_at(self, elapsed: float) -> float:
        """Return the temperature after the share ``elapsed`` of the iterations: 0 in the first, 1 in the last."""
        return self.temperature + elapsed * (self.final_temperature - self.temperature)

    def sample(self, logits: Tensor, elapsed: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
        """Return ids ``[P]`` for logits ``[P, V]``."""
        return sample_ids(logits, self.temperature_at(elapsed), self.top_p, generator)

    def __call__(
        self, logits: Tensor, elapsed: float = 0.0, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return tokens ``[P]`` and their log-probabilities ``[P]`` under the model, without temperature."""
        tokens = self.sample(logits, elapsed, generator)
        return tokens, token_log_probs(logits, tokens)


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return ``log softmax(logits)`` at ``tokens [P]``, for ``logits [P, V]``.

    Rows are processed in chunks that fit into the cache, which is three times as fast on a CPU.
    """
    size = rows_at_once(logits)
    parts = zip(logits.split(size), tokens.split(size), strict=True)
    return torch.cat([-functional.cross_entropy(rows.float(), ids, reduction="none") for rows, ids in parts])


def sample_ids(
    logits: Tensor, temperature: float, top_p: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    """Return one id per row of ``logits [P, V]``: the argmax at temperature 0, otherwise a sample.

    Sampling uses float64, because float32 truncates the tail and thereby lowers the temperature. Rows are processed in
    chunks, because intermediate results need several times the memory of the logits.
    """
    if temperature == 0:
        return logits.argmax(-1)
    parts = logits.split(rows_at_once(logits))
    return torch.cat([_sample((rows.double() / temperature).softmax(-1), top_p, generator) for rows in parts])


def _sample(probs: Tensor, top_p: float, generator: torch.Generator | None) -> Tensor:
    if top_p == 1:
        return _invert_cdf(probs, generator).squeeze(1)
    # An id belongs to the nucleus if the ids ranked before it have a mass below top_p. An id outside is replaced by a
    # sample from the ids ranked before it, which contain the nucleus. This gives the same distribution as sorting, in
    # a quarter of the time.
    ids = torch.arange(probs.shape[1], device=probs.device)
    rows = torch.arange(len(probs), device=probs.device)
    sampled = torch.empty_like(rows)
    while len(rows):
        new = _invert_cdf(probs, generator)
        threshold = probs.gather(1, new)
        before = probs * ((probs > threshold) | ((probs == threshold) & (ids < new)))
        sampled[rows] = new.squeeze(1)
        outside = before.sum(-1) >= top_p
        rows, probs = rows[outside], before[outside]
    return sampled


def _invert_cdf(weights: Tensor, generator: torch.Generator | None) -> Tensor:
    """Sample one id ``[P, 1]`` per row of ``weights [P, V]``, in proportion to them."""
    mass = weights.cumsum(-1)
    upper = mass[:, -1:].nextafter(mass.new_zeros(()))  # below the total mass, so that an id exceeds it
    uniform = torch.rand(upper.shape, dtype=mass.dtype, device=mass.device, generator=generator)
    # An id of weight 0 adds no mass and is never the first to exceed the sample. The clamp covers NaN weights.
    return torch.searchsorted(mass, uniform * upper, right=True).clamp(max=weights.shape[1] - 1)
