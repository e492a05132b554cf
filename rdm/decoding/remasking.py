"""ReMDM (Wang et al., 2025): denoised tokens are remasked at random without changing the noise schedule.

With the remasking probability ``sigma``, a step from ``t`` to ``s <= t`` uses

    v1 ~ Bernoulli(1 - sigma),    v2 ~ Bernoulli((alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t))

so that a share ``alpha_s`` of the tokens is denoised afterwards for every ``0 <= sigma <= sigma_max``, where

    sigma_max = min(1, (1 - alpha_s) / alpha_t)

``sigma = 0`` is ancestral sampling under mask noise. Tokens can be corrected in every iteration, so more iterations
than the ``T`` steps of the model are useful and allowed. Whether a token is noise is read from ``b``, not from its id,
so these routers work with every noise.

>>> from rdm.decoding.remasking import ReMDMCap
>>> ReMDMCap(eta=0.02).describe()
{'class': 'ReMDMCap', 'eta': 0.02}
"""

from abc import abstractmethod

import torch
from torch import Tensor

from rdm.decoding.schedule import steps_to_visit
from rdm.decoding.transition import Progress, Router, Start, State, actions, probability
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require


class Remasking(Router):
    """Base class of the ReMDM routers, which differ in ``sigma``."""

    any_number_of_steps = True

    def active(self, progress: Progress) -> Tensor:
        return progress.noisy

    @abstractmethod
    def sigma(self, state: State, sigma_max: float) -> float | Tensor:
        """Return the remasking probability, for all positions or for each, ``[R, N]``."""

    def route(self, state: State) -> Tensor:
        alpha_t, alpha_s = state.process.schedule.alpha(torch.tensor([state.t, state.s])).tolist()
        # 1e-300: at alpha_t = 0 no token is denoised and sigma is irrelevant, but it must not become NaN.
        sigma = self.sigma(state, sigma_max=min(1.0, (1 - alpha_s) / max(alpha_t, 1e-300)))
        tokens = state.tokens
        uniform = torch.rand(tokens.shape, dtype=torch.float64, device=tokens.device, generator=state.generator)
        denoise = (alpha_s - (1 - sigma) * alpha_t) / max(1 - alpha_t, 1e-300)
        return actions(state, v1=uniform < 1 - sigma, v2=uniform < denoise)


class ReMDMCap(Remasking):
    """``sigma = min(eta, sigma_max)``.

    Args:
        eta: upper bound of the remasking probability.
    """

    def __init__(self, eta: float = 0.008) -> None:
        super().__init__()
        self.eta = probability("eta", eta)

    def sigma(self, state: State, sigma_max: float) -> float:
        return min(self.eta, sigma_max)


class ReMDMRescale(Remasking):
    """``sigma = eta * sigma_max``.

    Args:
        eta: share of the largest possible remasking probability.
    """

    def __init__(self, eta: float = 0.015) -> None:
        super().__init__()
        self.eta = probability("eta", eta)

    def sigma(self, state: State, sigma_max: float) -> float:
        return self.eta * sigma_max


class ReMDMConf(Remasking):
    """``sigma_n = sigma_max * softmax_n(-p_n)`` over the denoised tokens, ``p_n`` their probability when denoised.

    Uncertain tokens are remasked more often. Noisy positions have ``sigma = 0``, so the share of denoised tokens lies
    slightly below ``alpha_s``, except at the end.
    """

    def sigma(self, state: State, sigma_max: float) -> Tensor:
        confidence = state.stored.double().exp().nan_to_num(0.0)
        weights = (-confidence).masked_fill(~state.denoised, float("-inf")).softmax(1)
        return sigma_max * weights.nan_to_num(0.0)  # NaN: rows without a denoised token


class ReMDMLoop(Remasking):
    """Denoise up to ``alpha_on``, keep this noise level while remasking with ``sigma = eta``, then finish.

    In time that runs from 1 to 0 over the iterations, the first phase ends at ``t_on`` and the second at ``t_off``.
    Outside the second phase ``sigma = 0``. The level is that of the step whose ``alpha`` is nearest to ``alpha_on``.

    Args:
        eta: remasking probability in the second phase, at most ``sigma_max``.
        t_on, t_off: start and end of the second phase, ``1 > t_on >= t_off > 0``.
        alpha_on: share of denoised tokens in the second phase.
    """

    def __init__(self, eta: float = 0.02, t_on: float = 0.55, t_off: float = 0.05, alpha_on: float = 0.9) -> None:
        super().__init__()
        require(
            1 > t_on >= t_off > 0,
            f"decoding.transition.t_on and t_off must satisfy 1 > t_on >= t_off > 0, got {t_on} and {t_off}",
        )
        self.eta, self.alpha_on = probability("eta", eta), probability("alpha_on", alpha_on)
        self.t_on, self.t_off = t_on, t_off

    def plan(self, start: Start) -> list[int]:
        """Return the steps of the three phases; the first and the last have at least one iteration each."""
        process, steps = start.process, start.steps
        if steps == 1:
            return [process.num_steps, 0]
        level = self._level(process)
        final = min(max(1, round(self.t_off * steps)), steps - 1)
        rising = min(max(1, round((1 - self.t_on) * steps)), steps - final)
        start.memo["loop"] = range(rising + 1, steps - final + 1)  # iterations of the second phase
        down_to_level = [level + step for step in steps_to_visit(process.num_steps - level, rising)]
        return [*down_to_level, *[level] * (steps - rising - final), *steps_to_visit(level, final)[1:]]

    def sigma(self, state: State, sigma_max: float) -> float:
        return min(self.eta, sigma_max) if state.iteration in state.memo.get("loop", ()) else 0.0

    def _level(self, process: DiffusionProcess) -> int:
        """Return the step of 1..T whose ``alpha`` is nearest to ``alpha_on``."""
        alpha = process.schedule.alpha(torch.arange(1, process.num_steps + 1))
        return 1 + int((alpha - self.alpha_on).abs().argmin())
