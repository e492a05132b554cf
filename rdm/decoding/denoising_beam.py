"""Beam search over the denoised tokens of a text.

>>> from rdm.decoding.routing import Commit
>>> from rdm.decoding.sampler import Canvas, Sampler
>>> from rdm.decoding.schedule import Linear
>>> from rdm.diffusion import noise, process, schedule
>>> from rdm.vocab import Vocab
>>> absorbing = process.DiffusionProcess(schedule.Linear(num_steps=2), noise.Absorbing(Vocab(size=7)))
>>> beam = Sampler("beam", 1, Commit(), Linear(), length_candidates=1, samples=2, search=DenoisingBeam())
>>> def denoise(tokens, t, active):  # 5 with probability 0.6, 6 with probability 0.4
...     return torch.tensor([0.0, 0, 0, 0, 0, 0.6, 0.4]).log().expand(int(active.sum()), -1)
>>> canvas = Canvas(torch.ones(2, 1, dtype=torch.long), pinned=torch.zeros(2, 1, dtype=torch.bool), candidates=2)
>>> decoded = beam.run(absorbing, denoise, canvas)
>>> decoded.tokens.tolist(), decoded.scores.exp()
([[5], [6]], tensor([0.6000, 0.4000]))
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rdm.decoding.candidates import Selection
from rdm.decoding.drafts import Drafts
from rdm.decoding.search import Replace, Search, permute_memo, take_rows
from rdm.decoding.transition import Action, Outcome, State, Transition, asks_again
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require


class DenoisingBeam(Search):
    """Keeps the most probable hypotheses of each target length (``decoding=rdm_beam``, ``draft_beam``).

    The ``W = samples / length_candidates`` candidates of one length are the hypotheses of a beam. After every iteration
    a hypothesis has continuations

        at each newly denoised position the proposal, or one of the W most probable tokens

    and the ``W`` continuations with the highest mean log-probability of their denoised tokens go on. If one token is
    denoised per iteration this is beam search. If several are, the network predicts them independently of each other,
    so the score of a continuation is the sum over its positions.
    """

    def check(self, transition: Transition, process: DiffusionProcess, samples: Sequence[int]) -> None:
        keeps = isinstance(transition, Drafts) or not asks_again(transition, process)
        known = "try decoding=rdm_beam, or draft_beam without decoding.block"
        require(keeps, f"decoding.search: a beam needs a decoding that keeps denoised tokens; {known}")
        message = f"decoding.samples={sum(samples)} must be a multiple of decoding.length_candidates={len(samples)}"
        require(len(set(samples)) == 1, message)

    def start(self, selection: Selection, sources: Tensor | None, rows: Tensor, candidates: int, width: int) -> Replace:
        return BeamHypotheses(min(width, candidates))


class BeamHypotheses:
    """Replaces the ``width`` consecutive rows of every length by its best continuations."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, state: State, outcome: Outcome, last: bool) -> Outcome:
        new = (outcome.action == Action.PROPOSE.value) & state.active
        tokens, log_probs = self.options(state, outcome, new)
        # The best continuations of every hypothesis, one new position after the other: [R, <= W].
        total = torch.where(outcome.denoised & ~new, outcome.stored, 0.0).sum(1, keepdim=True)
        total = total.masked_fill(self.repeats(outcome), float("-inf"))
        places = new.long().argsort(dim=1, descending=True, stable=True)[:, : int(new.sum(1).max())]
        chosen = new.new_zeros(*total.shape, 0, dtype=torch.long)  # [R, <= W, positions]: the options
        for place in places.unbind(1):
            options = log_probs.take_along_dim(place[:, None, None], 1)
            joint = (total[..., None] + options).flatten(1)
            total, best = joint.topk(min(self.width, joint.shape[1]))
            before = chosen.take_along_dim((best // options.shape[2])[..., None], 1)
            chosen = torch.cat([before, (best % options.shape[2])[..., None]], 2)
        # The best among those of every length: [R / W, W].
        means = total / outcome.denoised.sum(1, keepdim=True).clamp(min=1)
        each = means.shape[1]
        scores, index = means.view(-1, self.width * each).topk(self.width)
        first = torch.arange(len(index), device=index.device)[:, None] * self.width
        parents = (first + index // each).flatten()
        choice = chosen[parents, index.flatten() % each].masked_fill(scores.view(-1, 1).isneginf(), 0)
        permute_memo(state.memo, parents)
        outcome, new = take_rows(outcome, parents), new[parents]
        option = torch.zeros_like(outcome.tokens).scatter(1, places[parents], choice)[..., None]
        return replace(
            outcome,
            tokens=torch.where(new, tokens[parents].gather(2, option).squeeze(2), outcome.tokens),
            stored=torch.where(new, log_probs[parents].gather(2, option).squeeze(2), outcome.stored),
        )

    def options(self, state: State, outcome: Outcome, new: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids ``[R, N, 1 + W]`` and their log-probabilities: the proposal, and the most probable other tokens.

        At positions that are not ``new [R, N]`` the token stays, with the log-probability 0.
        """
        logits = state.logits[new[state.active].nonzero().squeeze(1)].float()
        best = logits.topk(min(self.width, logits.shape[1]))
        same = best.indices == state.proposal[new][:, None]
        shape = (*new.shape, best.indices.shape[1])
        ids = torch.zeros(shape, dtype=torch.long, device=new.device)
        others = torch.full(shape, float("-inf"), device=new.device)
        ids[new] = best.indices
        others[new] = (best.values - logits.logsumexp(1, keepdim=True)).masked_fill(same, float("-inf"))
        proposed = torch.where(new, outcome.stored, 0.0)
        return torch.cat([outcome.tokens[..., None], ids], 2), torch.cat([proposed[..., None], others], 2)

    def repeats(self, outcome: Outcome) -> Tensor:
        """Return which hypotheses ``[R, 1]`` equal an earlier one of their length, as all do at the start."""
        rows = outcome.tokens.view(-1, self.width, outcome.tokens.shape[1])
        equal = (rows[:, :, None] == rows[:, None]).all(3)
        return equal.tril(diagonal=-1).any(2).view(-1, 1)
