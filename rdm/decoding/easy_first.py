"""Parallel easy-first decoding (DisCo): all positions are predicted at once, each from the easier ones."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rdm.decoding.base import IteratedDecoding
from rdm.decoding.candidates import BestScore, LengthChoice, Selection, TopLengths
from rdm.decoding.proposal import token_log_probs
from rdm.decoding.sampler import Canvas, Decoded, mean_score
from rdm.errors import require

Predict = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(tokens [R, N], visible [R, N, N] bool, active [R, N] bool) -> logits [P, V]`` at the ``P`` active positions."""


@dataclass(frozen=True)
class Pass:
    """The rows before or after an iteration, as an observer sees them; each field but ``rows`` is ``[R, N]``."""

    tokens: Tensor
    denoised: Tensor
    free: Tensor
    scores: Tensor  # log-probability of the tokens predicted in this iteration
    scored: Tensor
    rows: Tensor  # [R]

    @property
    def stored(self) -> Tensor:
        return self.scores


Observer = Callable[[Pass, Pass], None]
"""Called after every iteration with its input and its result."""


class EasyFirst(IteratedDecoding):
    """Predicts from nothing, ranks the positions by confidence, then lets each see only those ranked before it.

        pass 1    y_n = argmax f_n(<bos>, <eos>);     z_n = rank of its probability, fixed from then on
        pass i    y_n = argmax f_n({y_m of pass i - 1 : z_m < z_n}), for all n at once

    A source is finished when its best candidate does not change in a pass.

    Args:
        name: name of the strategy in result rows.
        steps: maximum number of passes.
        length_candidates: number of lengths decoded in parallel.
        length_choice: which lengths; by default the most likely ones.
        selection: which candidate is returned; by default the one with the highest score.

    Example: a "network" that is certain of token 5, so that the second pass changes nothing.

        >>> canvas = Canvas(torch.tensor([[2, 1, 1, 3]]), pinned=torch.tensor([[True, False, False, True]]))
        >>> def predict(tokens, visible, active):
        ...     return torch.eye(8)[5].expand(int(active.sum()), -1)
        >>> decoded = EasyFirst("easy_first").run(predict, canvas, pad=0)
        >>> decoded.tokens, decoded.calls
        (tensor([[2, 5, 5, 3]]), tensor([2]))
    """

    def __init__(
        self,
        name: str,
        steps: int = 10,
        length_candidates: int = 5,
        length_choice: LengthChoice | None = None,
        selection: Selection | None = None,
    ) -> None:
        require(steps >= 1, f"decoding.steps must be at least 1, got {steps}")
        require(length_candidates >= 1, f"decoding.length_candidates must be at least 1, got {length_candidates}")
        self.name, self.steps, self.length_candidates = name, steps, length_candidates
        self.length_choice = length_choice or TopLengths()
        self.selection = selection or BestScore()

    @property
    def candidates(self) -> int:
        return self.length_candidates

    def candidate_lengths(self, logits: Tensor) -> Tensor:
        """Return the length ``[B, m]`` of every candidate, from the logits ``[B, L]`` of the length head."""
        return self.length_choice(logits, self.length_candidates)

    @torch.inference_mode()
    def run(self, predict: Predict, canvas: Canvas, pad: int, observer: Observer | None = None) -> Decoded:
        """Fill the free positions of ``canvas``; ``pad`` is the id of padding, which nothing sees."""
        tokens, free = canvas.tokens.clone(), ~canvas.pinned
        given = canvas.pinned & (tokens != pad)
        rank = torch.zeros_like(tokens)  # before the first pass nothing is ranked before anything
        scores = torch.zeros(tokens.shape, device=tokens.device)
        rows = torch.arange(len(tokens), device=tokens.device)
        calls, unfinished = torch.zeros_like(rows), torch.ones_like(rows, dtype=torch.bool)
        for iteration in range(1, self.steps + 1):
            active = free & unfinished[:, None]
            logits = predict(tokens, given[:, None] | visible_before(rank, free), active)
            calls = calls + active.any(1)
            chosen = logits.argmax(-1)
            before, first = tokens, iteration == 1
            tokens = tokens.masked_scatter(active, chosen)
            scores = scores.masked_scatter(active, token_log_probs(logits, chosen))
            if observer is not None:
                denoised = free & (not first)
                old = Pass(before, denoised, free, scores, free, rows)
                observer(old, Pass(tokens, free, free, scores, free, rows))
            if first:
                rank = scores.masked_fill(~free, float("-inf")).argsort(dim=1, descending=True, stable=True).argsort(1)
            else:
                same = (tokens == before).all(1).view(-1, canvas.candidates)
                best = mean_score(scores, free).view(-1, canvas.candidates).argmax(1, keepdim=True)
                unfinished = unfinished & ~same.gather(1, best).repeat_interleave(canvas.candidates)
            if not unfinished.any():
                break
        return Decoded(tokens=tokens, scores=mean_score(scores, free), rows=rows, calls=calls)


def visible_before(rank: Tensor, free: Tensor) -> Tensor:
    """Return ``[R, N, N]``, whether the free position m has a lower rank than position n.

    >>> visible_before(torch.tensor([[1, 0]]), torch.tensor([[True, True]]))
    tensor([[[False,  True],
             [False, False]]])
    """
    return (rank[:, None] < rank[..., None]) & free[:, None]
