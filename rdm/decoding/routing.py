"""The transitions of the paper: ancestral sampling, adaptive top-k routing and the vanilla posterior.

>>> from rdm.decoding.routing import Conditional, Unconditional
>>> Unconditional(gumbel_scale=1.0).describe()
{'class': 'Unconditional', 'gumbel_scale': 1.0, 'sent_back_interpolates': False, 'score': None}
"""

import torch
from torch import Tensor

from rdm.cross_entropy import rows_at_once
from rdm.decoding.scores import Confidence, Score
from rdm.decoding.transition import Action, Outcome, Progress, Router, State, Transition, actions, top_k
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require


class Ancestral(Router):
    """Vanilla decoding: ``v1 ~ Bernoulli(lambda1)`` and ``v2 ~ Bernoulli(lambda2)``, independent of the scores.

    Args:
        keep_denoised: fix ``v1 = 1``, as the official code does for RDM-multinomial.
        sent_back_interpolates: see :class:`~rdm.decoding.transition.Router`.
    """

    def __init__(self, keep_denoised: bool = False, sent_back_interpolates: bool = False) -> None:
        super().__init__(sent_back_interpolates)
        self.keep_denoised = keep_denoised

    def active(self, progress: Progress) -> Tensor:
        return progress.noisy

    def route(self, state: State) -> Tensor:
        t, s = state.step_tensors()
        lambda1 = state.process.lambda1(state.tokens, t, s)
        if self.keep_denoised:
            lambda1 = torch.ones_like(lambda1)
        lambda2 = state.process.lambda2(t, s).expand_as(lambda1)
        uniform = torch.rand(lambda1.shape, dtype=torch.float64, device=lambda1.device, generator=state.generator)
        return actions(state, v1=uniform < lambda1, v2=uniform < lambda2)


class TopK(Router):
    """Base class of adaptive routing (Eq. 11): the ``k`` tokens of highest score are denoised, the others are noise.

    Args:
        gumbel_scale: 0 ranks by score; a positive value adds Gumbel noise times ``gumbel_scale * noise_rate`` first.
        sent_back_interpolates: see :class:`~rdm.decoding.transition.Router`.
        score: what tokens are ranked by (config group ``ranking``); None: :class:`~rdm.decoding.scores.Confidence`.
    """

    def __init__(
        self,
        gumbel_scale: float = 0.0,
        sent_back_interpolates: bool = False,
        score: Score | None = None,
    ) -> None:
        super().__init__(sent_back_interpolates)
        require(gumbel_scale >= 0, f"decoding.transition.gumbel_scale must be 0 or greater, got {gumbel_scale}")
        self.gumbel_scale = gumbel_scale
        self.score = score or Confidence()

    def scores(self, state: State) -> Tensor:
        """Return the values ``[R, N]`` by which tokens are ranked."""
        scores = self.score.now(state)
        if self.gumbel_scale == 0:
            return scores
        exponential = torch.empty_like(scores, dtype=torch.float64).exponential_(generator=state.generator)
        return scores - self.gumbel_scale * state.noise_rate * exponential.log()

    def step(self, state: State) -> Outcome:
        outcome = super().step(state)
        self.score.remember(state, outcome)
        return outcome


class Unconditional(TopK):
    """``uncond``: ``v1 = v2 = (n in top-k)``; a denoised token outside the top-k is sent back to noise."""

    def route(self, state: State) -> Tensor:
        chosen = top_k(self.scores(state), state.count, state.free)
        return actions(state, v1=chosen, v2=chosen)


class P2(Unconditional):
    """P2 with self-planning (Peng et al., 2025): ``uncond`` with the scores of denoised tokens times ``eta``.

    Proposals are sampled (``decoding.temperature=1``) and the schedule is linear in the published setting. Any number
    of iterations is legal, because tokens can be corrected in each.

    Args:
        eta: above 1, denoised tokens are sent back more often; 1 is ``uncond``; 0 never sends one back while a noisy
            token is less certain.
        gumbel_scale, sent_back_interpolates, score: see :class:`TopK`.
    """

    any_number_of_steps = True

    def __init__(
        self,
        eta: float = 1.0,
        gumbel_scale: float = 0.0,
        sent_back_interpolates: bool = False,
        score: Score | None = None,
    ) -> None:
        super().__init__(gumbel_scale, sent_back_interpolates, score)
        require(eta >= 0, f"decoding.transition.eta must be 0 or greater, got {eta}")
        self.eta = eta

    def scores(self, state: State) -> Tensor:
        scores = super().scores(state)
        return torch.where(state.denoised, self.eta * scores, scores)


class MaskPredict(Unconditional):
    """Mask-Predict (CMLM): ``uncond`` with denoised tokens ranked by the score *stored* when they were denoised."""

    def active(self, progress: Progress) -> Tensor:
        return progress.noisy

    def scores(self, state: State) -> Tensor:
        return torch.where(state.denoised, self.score.stored(state), super().scores(state))


class Conditional(TopK):
    """``cond``: a denoised token is sent back only under three conditions (the official reading of the appendix).

    It is outside the top-k, its score is lower than the stored one, and the network still proposes the same token.
    """

    def route(self, state: State) -> Tensor:
        chosen = top_k(self.scores(state), state.count, state.free)
        fell = self.score.now(state) < self.score.stored(state)
        doubted = ~chosen & fell & (state.proposal == state.tokens)
        return actions(state, v1=~doubted, v2=chosen)


class Commit(TopK):
    """``commit``: denoised tokens stay; the best noisy ones are added until ``k`` are denoised (LLaDA)."""

    def active(self, progress: Progress) -> Tensor:
        return progress.noisy

    def route(self, state: State) -> Tensor:
        missing = (state.count - (state.denoised & state.free).sum(1)).clamp(min=0)
        chosen = top_k(self.scores(state), missing, state.noisy)
        return actions(state, v1=torch.ones_like(chosen), v2=chosen)


class PosteriorStep(Transition):
    """The vanilla posterior ``p(x_s | x_t) = q(x_s | x_t, f(x_t))`` of the appendix, by argmax or sampling.

    It is not a router. For uniform noise over a large vocabulary it decides every token in the first iteration and
    changes almost none afterwards, as the paper observes.
    """

    def check_noise(self, process: DiffusionProcess) -> None:
        message = (
            "decoding: the posterior step does not know which tokens are noise, as this run asks; try decoding=rdm"
        )
        require(not process.token_steps, message)

    def step(self, state: State) -> Outcome:
        size, observed = rows_at_once(state.logits), state.tokens.flatten()[state.active_index]
        parts = []
        for logits, x_t in zip(state.logits.split(size), observed.split(size), strict=True):
            log_probs, ones = logits.float().log_softmax(-1), torch.ones_like(x_t)
            ids = state.sample(state.process.posterior_log_probs(x_t, log_probs, state.t * ones, state.s * ones))
            parts.append((ids, log_probs.gather(1, ids[:, None]).squeeze(1)))
        chosen, scores = (torch.cat(side) for side in zip(*parts, strict=True))
        tokens = state.tokens.masked_scatter(state.active, chosen)
        stored = state.stored.masked_scatter(state.active, scores)
        return Outcome(
            tokens=tokens,
            denoised=((tokens == state.proposal) | (state.s == 0)) & state.free,
            stored=stored,
            action=torch.where(tokens == state.tokens, Action.KEEP, Action.PROPOSE),
        )
