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

from rdm.decoding.candidates import Selection, mean_score
from rdm.decoding.search import Replace, Search, permute_memo, take_rows
from rdm.decoding.transition import Action, Outcome, State, Transition, asks_again
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require


class DenoisingBeam(Search):
    """Keeps the most probable hypotheses of each target length (``decoding=rdm_beam``).

    The ``W = samples / length_candidates`` candidates of one length are the hypotheses of a beam. After every iteration
    a hypothesis has the continuations

        the proposals at all newly denoised positions, or these with one of them replaced by the 2nd .. W-th best token,

    and the ``W`` continuations with the highest mean log-probability of their denoised tokens go on. If one token is
    denoised per iteration this is beam search. If several are, the network predicts them independently of each other,
    and the most probable ones are the continuations that matter.
    """

    def check(self, transition: Transition, process: DiffusionProcess, samples: Sequence[int]) -> None:
        message = "decoding.search: a beam needs a decoding that keeps denoised tokens; try decoding=rdm_beam"
        require(not asks_again(transition, process), message)
        self.check_width(samples)

    def check_width(self, samples: Sequence[int]) -> None:
        """Raise unless all lengths have equally many hypotheses; ``samples`` are their numbers."""
        message = f"decoding.samples={sum(samples)} must be a multiple of decoding.length_candidates={len(samples)}"
        require(len(set(samples)) == 1, message)

    def start(self, selection: Selection, sources: Tensor | None, rows: Tensor, candidates: int, width: int) -> Replace:
        return BeamHypotheses(min(width, candidates))


class BeamHypotheses:
    """Replaces the ``width`` consecutive rows of every length by its best continuations."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, state: State, outcome: Outcome, last: bool) -> Outcome:
        tokens, log_probs = self.other_tokens(state, outcome)
        count = outcome.denoised.sum(1, keepdim=True).clamp(min=1)
        proposed = mean_score(outcome.stored, outcome.denoised).masked_fill(self.repeats(outcome), float("-inf"))
        replaced = proposed[:, None] + (log_probs - outcome.stored[..., None]).flatten(1) / count
        # The best continuations of every hypothesis [R, <= W], and among these those of every length [R / W, W].
        continuations = torch.cat([proposed[:, None], replaced], 1)
        each = min(self.width, continuations.shape[1])
        scores, choice = continuations.topk(each)
        scores, index = scores.view(-1, self.width * each).topk(self.width)
        first = torch.arange(len(index), device=index.device)[:, None] * self.width
        parents = (first + index // each).flatten()
        choice = choice[parents, index.flatten() % each].masked_fill(scores.flatten().isneginf(), 0)
        permute_memo(state.memo, parents)
        outcome, entry = take_rows(outcome, parents), (choice - 1).clamp(min=0)[:, None]
        columns = torch.arange(outcome.tokens.shape[1], device=index.device)
        place = (columns == entry // log_probs.shape[2]) & (choice > 0)[:, None]
        self.replaced(state, place)
        return replace(
            outcome,
            tokens=torch.where(place, tokens.flatten(1)[parents].gather(1, entry), outcome.tokens),
            stored=torch.where(place, log_probs.flatten(1)[parents].gather(1, entry), outcome.stored),
        )

    def other_tokens(self, state: State, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """Return ids ``[R, N, W]`` that can replace the proposal, and their log-probabilities: -inf for no token."""
        new = self.replaceable(state, outcome)
        logits = state.logits[new[state.active].nonzero().squeeze(1)].float()
        best = logits.topk(min(self.width, logits.shape[1]))
        same = best.indices == state.proposal[new][:, None]
        shape = (*new.shape, best.indices.shape[1])
        tokens = torch.zeros(shape, dtype=torch.long, device=new.device)
        log_probs = torch.full(shape, float("-inf"), device=new.device)
        tokens[new] = best.indices
        log_probs[new] = (best.values - logits.logsumexp(1, keepdim=True)).masked_fill(same, float("-inf"))
        return tokens, log_probs

    def replaceable(self, state: State, outcome: Outcome) -> Tensor:
        """Return the positions ``[R, N]`` where another token may replace the proposal: those just denoised."""
        return (outcome.action == Action.PROPOSE.value) & state.active

    def replaced(self, state: State, place: Tensor) -> None:
        """Called with the position ``[R, N]`` of the replaced token of each new row, if it has one."""

    def repeats(self, outcome: Outcome) -> Tensor:
        """Return which hypotheses ``[R]`` equal an earlier one of their length, as all do at the start."""
        rows = outcome.tokens.view(-1, self.width, outcome.tokens.shape[1])
        equal = (rows[:, :, None] == rows[:, None]).all(3)
        return equal.tril(diagonal=-1).any(2).flatten()
