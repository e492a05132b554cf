"""Samplers that draw tokens again at the same noise level: Psi and the leave-one-out corrector.

>>> from rdm.decoding.correcting import Psi
>>> Psi(eta=0.05).describe()
{'class': 'Psi', 'eta': 0.05}
"""

from dataclasses import replace

import torch
from torch import Tensor

from rdm.decoding.proposal import token_log_probs
from rdm.decoding.routing import Ancestral
from rdm.decoding.schedule import steps_to_visit
from rdm.decoding.transition import Action, Outcome, Progress, Start, State, probability, require_text_noise, top_k
from rdm.diffusion.process import DiffusionProcess


class Psi(Ancestral):
    """Psi-samplers (Duo): the posterior step with probability ``kappa``, else a new draw of ``q(x_s | x0_hat)``.

    For every token on its own, with ``sigma = min(eta, 1 - alpha_s)``,

        x_s ~ kappa q(x_s | x_t, x0_hat) + (1 - kappa) q(x_s | x0_hat),        kappa = 1 - sigma / (1 - alpha_s)

    so under mask noise a denoised token becomes noise with probability ``sigma``. Under every noise, a new draw may
    replace a denoised token with the proposal. Any number of iterations is legal.

    Args:
        eta: upper bound of ``sigma``; 0 is ancestral sampling.
    """

    any_number_of_steps = True

    def __init__(self, eta: float = 0.02) -> None:
        super().__init__()
        self.eta = probability("eta", eta)

    def active(self, progress: Progress) -> Tensor:
        return progress.free

    def route(self, state: State) -> Tensor:
        posterior = super().route(state)
        alpha_s = float(state.process.schedule.alpha(torch.tensor(state.s)))
        kappa = 1 - min(self.eta, 1 - alpha_s) / (1 - alpha_s) if alpha_s < 1 else 1.0
        if kappa == 1:
            return posterior
        choice, keep = torch.rand(
            2, *posterior.shape, dtype=torch.float64, device=posterior.device, generator=state.generator
        )
        drawn = torch.where(keep < alpha_s, Action.PROPOSE, Action.REDRAW)
        return torch.where(choice < kappa, posterior, drawn)


class LeaveOneOut(Ancestral):
    """Ancestral sampling in which every second iteration corrects the least certain tokens, for text-like noise.

    A model of ``p(x_0 | x_t)`` has seen the token at the position itself. Without it the distribution is

        p(x_0 | x_t without n)  ~  p(x_0 | x_t) / (1 + [x_0 = x_t] alpha / ((1 - alpha) q_noise(x_t)))

    (for uniform noise, ``log(1 + V alpha / (1 - alpha))`` is subtracted from the logit of the observed token). A
    corrector iteration at ``s = t`` takes the share ``corrected`` of the positions with the lowest probability of
    their token under it, and draws each again from ``alpha_t x0_hat + (1 - alpha_t) q_noise``. The formula assumes
    a model that was trained at all positions (``diffusion=multinomial``). The reparameterised objectives learn noisy
    positions only, where the observed token says little, and the correction is then too strong.

    Args:
        corrected: share of the free positions, at least one.
    """

    def __init__(self, corrected: float = 0.1) -> None:
        super().__init__()
        self.corrected = probability("corrected", corrected)

    def check_noise(self, process: DiffusionProcess) -> None:
        require_text_noise(process, instead="decoding=psi or a ReMDM sampler")

    def plan(self, start: Start) -> list[int]:
        """Return ``steps // 2 + 1`` even strides and a corrector iteration after each but the last.

        With an even number of iterations there is one corrector less: none after the first stride.
        """
        steps, strides = start.steps, start.steps // 2 + 1
        even = steps_to_visit(start.process.num_steps, strides)
        corrected = even[1:-1][-(steps - strides) :] if steps > strides else []
        return sorted([*even, *corrected], reverse=True)

    def active(self, progress: Progress) -> Tensor:
        return progress.free if progress.s == progress.t else super().active(progress)

    def step(self, state: State) -> Outcome:
        return super().step(state if state.s < state.t else self._without_observed(state))

    def route(self, state: State) -> Tensor:
        if state.s < state.t:
            return super().route(state)
        alpha = float(state.process.schedule.alpha(torch.tensor(state.t)))
        count = (state.free.sum(1) * self.corrected).ceil().long().clamp(min=1)
        chosen = top_k(-state.memo["certainty"], count, state.free)
        uniform = torch.rand(chosen.shape, dtype=torch.float64, device=chosen.device, generator=state.generator)
        drawn = torch.where(uniform < alpha, Action.PROPOSE, Action.REDRAW)
        return torch.where(chosen, drawn, Action.KEEP)

    def _without_observed(self, state: State) -> State:
        """Return the state with proposals from the leave-one-out distribution, and the observed tokens' scores."""
        observed, noise = state.tokens.flatten()[state.active_index], state.process.noise
        alpha = float(state.process.schedule.alpha(torch.tensor(state.t)))
        seen = torch.log1p(alpha / ((1 - alpha) * noise.prob(observed)).clamp(min=1e-300))
        index = observed[:, None]
        logits = state.logits.float().clone()
        logits.scatter_(1, index, logits.gather(1, index) - seen[:, None].float())
        proposed = state.sample(logits)
        scores = state.scores.masked_scatter(state.active, token_log_probs(state.logits, proposed))
        certainty = torch.zeros_like(scores).masked_scatter(state.active, token_log_probs(logits, observed))
        proposal = state.proposal.masked_scatter(state.active, proposed)
        return replace(state, proposal=proposal, scores=scores, memo={"certainty": certainty})
