"""Beam search for autoregressive models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from rdm.decoding.base import Decoding
from rdm.decoding.trace import GrowingText
from rdm.errors import require
from rdm.vocab import Vocab


class Continuation(Protocol):
    """An autoregressive model with a cache: ``R`` unfinished texts, grouped by source."""

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append ``tokens [R]`` and return the logits ``[R, V]`` of the next token."""

    def select(self, sources: Tensor, rows: Tensor) -> None:
        """Continue with these sources and, sorted by source, these rows."""


@dataclass
class NBest:
    """The best finished texts of ``B`` sources, up to ``W`` each, the highest score first."""

    tokens: Tensor  # [B, W, N] with <bos> and <eos>, padded; only padding if fewer texts have finished
    totals: Tensor  # [B, W, N] log p of the text up to each token
    scores: Tensor  # [B, W]; -inf if fewer texts have finished

    def add(self, sources: Tensor, tokens: Tensor, totals: Tensor, scores: Tensor, pad: int) -> None:
        """Merge ``tokens [B', C, n]`` with ``scores [B', C]`` into the lists of the given ``sources [B']``."""
        width, length = self.tokens.shape[1:]
        missing = (0, length - tokens.shape[2])
        all_scores = torch.cat([self.scores[sources], scores], 1)
        all_tokens = torch.cat([self.tokens[sources], functional.pad(tokens, missing, value=pad)], 1)
        all_totals = torch.cat([self.totals[sources], functional.pad(totals, missing)], 1)
        all_scores, order = all_scores.sort(dim=1, descending=True, stable=True)  # of equal scores the earlier text
        finished = all_scores[:, :width, None].isfinite()
        order = order[:, :width, None]
        self.scores[sources] = all_scores[:, :width]
        self.tokens[sources] = all_tokens.take_along_dim(order, 1).masked_fill(~finished, pad)
        self.totals[sources] = all_totals.take_along_dim(order, 1).masked_fill(~finished, 0.0)


@dataclass
class Beams:
    """The ``W`` unfinished texts of each of the ``B'`` sources that are not done."""

    sources: Tensor  # [B'] index of the source
    tokens: Tensor  # [B', W, n] the most probable text first
    totals: Tensor  # [B', W, n] log p of the text up to each token
    ended: Tensor  # [B'] number of finished texts

    def expand(self, log_probs: Tensor, maximum: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the ``C <= maximum`` most probable continuations by one token, given ``log_probs [B' * W, V]``.

        Returns:
            Texts and their totals ``[B', C, n + 1]``, and the index in the beam ``[B', C]`` of the text each continues.
        """
        size = log_probs.shape[1]
        scores = (self.totals[:, :, -1].flatten()[:, None] + log_probs).view(len(self.sources), -1)
        top, index = scores.topk(min(maximum, scores.shape[1]), 1)
        origin, token = (index // size)[..., None], (index % size)[..., None]
        texts = torch.cat([self.tokens.take_along_dim(origin, 1), token], 2)
        return texts, torch.cat([self.totals.take_along_dim(origin, 1), top[..., None]], 2), origin.squeeze(2)


class BeamSearch(Decoding):
    """Keeps the ``beam_size`` most probable unfinished texts of each source; ``beam_size=1`` is greedy search.

    A text among the ``beam_size`` best that ends with ``<eos>`` is finished and leaves the beam. A source is done, and
    leaves the computation, when ``beam_size`` of its texts have finished. Finished texts are ranked by

        log p(y) / |y| ** length_penalty,        |y| including ``<eos>``.

    Args:
        name: name of the strategy in result rows.
        beam_size: number of texts kept per source.
        length_penalty: 0 compares probabilities, 1 the mean log-probability per token.

    >>> print(BeamSearch("beam", beam_size=4))
    beam, width 4
    """

    steps = None

    def __init__(self, name: str, beam_size: int = 5, length_penalty: float = 1.0) -> None:
        require(beam_size >= 1, f"decoding.beam_size must be at least 1, got {beam_size}")
        valid = abs(length_penalty) <= 10  # false for NaN
        require(valid, f"decoding.length_penalty must lie between -10 and 10, got {length_penalty}")
        self.name = name
        self.beam_size = beam_size
        self.length_penalty = length_penalty

    @property
    def candidates(self) -> int:
        return self.beam_size

    def __str__(self) -> str:
        return f"{self.name}, width {self.beam_size}"

    def trace(self) -> GrowingText:
        return GrowingText()

    @torch.inference_mode()
    def run(
        self,
        write: Continuation,
        first: Tensor,
        max_length: int,
        vocab: Vocab,
        observer: Callable[[Tensor, Tensor], None] | None = None,
    ) -> NBest:
        """Return the finished texts of ``B`` sources, up to ``beam_size`` each, sorted by score.

        The observer is called with tokens and their log-probabilities ``[B, N]`` before the first token and after each:
        the most probable unfinished text of every source, or the best finished one if the source is done.

        Args:
            write: the model.
            first: ``[B]``, the first token of each text.
            max_length: maximum number of tokens without ``first`` and ``<eos>``.
            vocab: special symbols.
        """
        count, device = len(first), first.device
        beams = Beams(
            sources=torch.arange(count, device=device),
            tokens=first.view(-1, 1, 1),
            totals=torch.zeros(count, 1, 1, device=device),
            ended=torch.zeros(count, dtype=torch.long, device=device),
        )
        best = NBest(
            tokens=torch.full((count, self.beam_size, max_length + 2), vocab.pad, device=device),
            totals=torch.zeros(count, self.beam_size, max_length + 2, device=device),
            scores=torch.full((count, self.beam_size), float("-inf"), device=device),
        )
        others = torch.arange(vocab.size, device=device) != vocab.eos
        for length in range(1, max_length + 2):  # of the texts after this iteration, without `first`
            if observer is not None:
                observer(*leading_texts(beams, best, vocab))
            log_probs = write(beams.tokens[:, :, -1].flatten()).float().log_softmax(-1)
            if length > max_length:
                log_probs = log_probs.masked_fill(others, float("-inf"))
            # Each text has one continuation that ends, so 2 * beam_size contain beam_size that do not.
            texts, totals, origin = beams.expand(log_probs, 2 * self.beam_size)
            ends = texts[:, :, -1] == vocab.eos

            finished = ends[:, : self.beam_size]
            normalised = totals[:, : self.beam_size, -1] / length**self.length_penalty
            scores = normalised.masked_fill(~finished, float("-inf"))
            best.add(beams.sources, texts[:, : self.beam_size], totals[:, : self.beam_size], scores, vocab.pad)

            ended = beams.ended + finished.sum(1)
            alive = (ended < self.beam_size).nonzero().squeeze(1)
            if length > max_length or not len(alive):
                break
            width = beams.tokens.shape[1]
            unfinished = ends.long().argsort(dim=1, stable=True)[:, : min(self.beam_size, width * (vocab.size - 1))]
            offsets = torch.arange(len(beams.sources), device=device)[:, None] * width
            rows = offsets + origin.gather(1, unfinished)
            write.select(alive, rows[alive].flatten())
            beams = Beams(
                sources=beams.sources[alive],
                tokens=texts.take_along_dim(unfinished[..., None], 1)[alive],
                totals=totals.take_along_dim(unfinished[..., None], 1)[alive],
                ended=ended[alive],
            )
        if observer is not None:
            observer(best.tokens[:, 0], increments(best.totals[:, 0]))
        return best


def leading_texts(beams: Beams, best: NBest, vocab: Vocab) -> tuple[Tensor, Tensor]:
    """Return tokens and log p ``[B, N]`` of the first text in each beam, or the best finished text of done sources."""
    tokens, totals, length = best.tokens[:, 0].clone(), best.totals[:, 0].clone(), beams.tokens.shape[2]
    tokens[beams.sources] = vocab.pad
    tokens[beams.sources, :length], totals[beams.sources, :length] = beams.tokens[:, 0], beams.totals[:, 0]
    return tokens, increments(totals)


def increments(totals: Tensor) -> Tensor:
    """Return the differences along each row of the cumulative log p ``totals [B, N]``."""
    return totals.diff(dim=1, prepend=totals[:, :1])
