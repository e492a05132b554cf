"""Beam search: the text of highest score that a left-to-right model gives, as far as a beam can see."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rdm.decoding.base import Decoding
from rdm.decoding.trace import GrowingText
from rdm.errors import require
from rdm.vocab import Vocab


class Continuation(Protocol):
    """Texts being written, ``R`` rows over the sources: what a left-to-right model has to offer."""

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append ``tokens [R]`` and return the logits ``[R, V]`` of the next."""

    def select(self, sources: Tensor, rows: Tensor) -> None:
        """Go on with these of the sources and, sorted by source, these of the rows."""


@dataclass
class Best:
    """The best finished text of each of ``B`` sources so far."""

    tokens: Tensor  # [B, N] with <eos>, padded
    totals: Tensor  # [B, N] log p of the text up to each token
    scores: Tensor  # [B], -inf before the first

    def offer(self, sources: Tensor, tokens: Tensor, totals: Tensor, scores: Tensor) -> None:
        """Take what is better: ``tokens [B', n]`` with ``scores [B']`` of ``B'`` of the sources."""
        better = scores > self.scores[sources]
        sources, length = sources[better], tokens.shape[1]
        self.scores[sources] = scores[better]
        self.tokens[sources, :length], self.totals[sources, :length] = tokens[better], totals[better]


@dataclass
class Beams:
    """The ``W`` texts in the beam of each of the ``B'`` sources that are not done."""

    sources: Tensor  # [B'] index of the source
    tokens: Tensor  # [B', W, n] the likeliest text first
    totals: Tensor  # [B', W, n] log p of the text up to each token
    ended: Tensor  # [B'] texts that have left the beam

    def continued(self, log_probs: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """The ``C <= most`` likeliest continuations by one token, of all that ``log_probs [B' * W, V]`` gives.

        Returns:
            texts and their totals ``[B', C, n + 1]``, and the place in the beam ``[B', C]`` each came from.
        """
        size = log_probs.shape[1]
        scores = (self.totals[:, :, -1].flatten()[:, None] + log_probs).view(len(self.sources), -1)
        top, index = scores.topk(min(most, scores.shape[1]), 1)
        origin, token = (index // size)[..., None], (index % size)[..., None]
        texts = torch.cat([self.tokens.take_along_dim(origin, 1), token], 2)
        return texts, torch.cat([self.totals.take_along_dim(origin, 1), top[..., None]], 2), origin.squeeze(2)


class BeamSearch(Decoding):
    """Keeps the ``beam_size`` likeliest unfinished texts of each source; a beam of 1 is greedy search.

    A text among the ``beam_size`` likeliest that ends leaves the beam, and the next one moves up. A source is done, and
    leaves the computation, when ``beam_size`` of its texts have ended. The best of them is returned, by

        log p(y) / |y| ** length_penalty,        |y| with ``<eos>``.

    Args:
        name: as it appears in results.
        beam_size: texts kept for each source.
        length_penalty: 0 compares probabilities, 1 the mean over tokens.
    """

    def __init__(self, name: str, beam_size: int = 5, length_penalty: float = 1.0) -> None:
        require(beam_size >= 1, f"decoding.beam_size must be at least 1, got {beam_size}")
        fits = abs(length_penalty) <= 10  # also false for nan
        require(fits, f"decoding.length_penalty must lie between -10 and 10, got {length_penalty}")
        self.name = name
        self.beam_size = beam_size
        self.length_penalty = length_penalty

    def __str__(self) -> str:
        return f"{self.name}, width {self.beam_size}"

    def trace(self) -> GrowingText:
        return GrowingText()

    def describe(self) -> dict[str, Any]:
        return {
            "strategy": self.name,
            "steps": None,
            "candidates": self.beam_size,
            "length_penalty": self.length_penalty,
        }

    @torch.inference_mode()
    def run(
        self,
        write: Continuation,
        first: Tensor,
        max_length: int,
        vocab: Vocab,
        observer: Callable[[Tensor, Tensor], None] | None = None,
    ) -> Best:
        """Texts of up to ``max_length`` tokens for ``B`` sources, each beginning with a token of ``first [B]``.

        The observer is shown tokens and their log-probabilities ``[B, N]`` before the first token and after each: the
        likeliest unfinished text of every source, or the best finished one if the source is done.
        """
        count, device = len(first), first.device
        beams = Beams(
            sources=torch.arange(count, device=device),
            tokens=first.view(-1, 1, 1),
            totals=torch.zeros(count, 1, 1, device=device),
            ended=torch.zeros(count, dtype=torch.long, device=device),
        )
        best = Best(
            tokens=torch.full((count, max_length + 2), vocab.pad, device=device),
            totals=torch.zeros(count, max_length + 2, device=device),
            scores=torch.full((count,), float("-inf"), device=device),
        )
        others = torch.arange(vocab.size, device=device) != vocab.eos
        for length in range(1, max_length + 2):  # of the texts with the token that comes now, the first not counted
            if observer is not None:
                observer(*leading(beams, best, vocab))
            log_probs = write(beams.tokens[:, :, -1].flatten()).float().log_softmax(-1)
            if length > max_length:
                log_probs = log_probs.masked_fill(others, float("-inf"))
            # A text can end in one way only: among twice the beam there are enough that go on.
            texts, totals, origin = beams.continued(log_probs, 2 * self.beam_size)
            ends = texts[:, :, -1] == vocab.eos

            finished = ends[:, : self.beam_size]
            normalised = totals[:, : self.beam_size, -1] / length**self.length_penalty
            top, which = normalised.masked_fill(~finished, float("-inf")).max(1)
            each = torch.arange(len(which), device=device)
            best.offer(beams.sources, texts[each, which], totals[each, which], top)

            ended = beams.ended + finished.sum(1)
            alive = (ended < self.beam_size).nonzero().squeeze(1)
            if length > max_length or not len(alive):
                break
            width = beams.tokens.shape[1]
            go_on = ends.long().argsort(dim=1, stable=True)[:, : min(self.beam_size, width * (vocab.size - 1))]
            rows = each[:, None] * width + origin.gather(1, go_on)
            write.select(alive, rows[alive].flatten())
            beams = Beams(
                sources=beams.sources[alive],
                tokens=texts.take_along_dim(go_on[..., None], 1)[alive],
                totals=totals.take_along_dim(go_on[..., None], 1)[alive],
                ended=ended[alive],
            )
        if observer is not None:
            observer(best.tokens, best.totals.diff(dim=1, prepend=best.totals[:, :1]))
        return best


def leading(beams: Beams, best: Best, vocab: Vocab) -> tuple[Tensor, Tensor]:
    """The likeliest text in each beam, or where the source is done the best finished one: ``[B, N]`` tokens, log p."""
    tokens, totals, length = best.tokens.clone(), best.totals.clone(), beams.tokens.shape[2]
    tokens[beams.sources] = vocab.pad
    tokens[beams.sources, :length], totals[beams.sources, :length] = beams.tokens[:, 0], beams.totals[:, 0]
    return tokens, totals.diff(dim=1, prepend=totals[:, :1])
