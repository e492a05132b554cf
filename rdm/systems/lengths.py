"""What systems with a length head share: its loss, the rows that decoding fills, and the choice among candidates."""

from dataclasses import replace
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from rdm.decoding.candidates import Selection
from rdm.decoding.sampler import Canvas, Decoded
from rdm.errors import require
from rdm.systems.base import Hypotheses, choose, mean_calls
from rdm.vocab import Vocab


class LengthCandidates(Protocol):
    """A decoding that decodes several lengths of a text in parallel."""

    length_candidates: int
    selection: Selection

    def candidate_lengths(self, logits: Tensor) -> Tensor:
        """Return the length ``[B, m]`` of every candidate, from the logits ``[B, L]`` of the length head."""


def text_lengths(target: Tensor, vocab: Vocab) -> Tensor:
    """Return the lengths ``[B]`` of targets ``[B, N]``, without ``<bos>`` and ``<eos>``."""
    return (target != vocab.pad).sum(1) - 2


def length_nats(logits: Tensor, target: Tensor, vocab: Vocab, reduction: Literal["none", "sum"] = "none") -> Tensor:
    """Return ``-log p(length | source)`` ``[B]`` of targets ``[B, N]``, or the sum, from logits ``[B, L]``."""
    return functional.cross_entropy(logits, text_lengths(target, vocab), reduction=reduction)


def length_canvas(vocab: Vocab, lengths: Tensor) -> Canvas:
    """Return ``m`` rows ``<bos> . . . <eos> <pad> ..`` per source with ``lengths [B, m]`` free positions.

    >>> length_canvas(Vocab(size=9), torch.tensor([[1, 2]])).tokens
    tensor([[2, 1, 3, 0],
            [2, 1, 1, 3]])
    """
    columns = torch.arange(int(lengths.max()) + 2, device=lengths.device)
    end = (lengths.flatten() + 1)[:, None]
    tokens = torch.where(columns < end, vocab.mask, vocab.pad)
    tokens = torch.where(columns == end, vocab.eos, tokens)
    tokens[:, 0] = vocab.bos
    return Canvas(tokens, pinned=(columns == 0) | (columns >= end), candidates=lengths.shape[1])


def canvas_to_fill(
    logits: Tensor, decoding: LengthCandidates, vocab: Vocab, template: Tensor | None
) -> tuple[Canvas, Tensor]:
    """Return the rows that decoding fills, and their lengths ``[B, m]``.

    Args:
        logits: ``[B, L]`` of the length head.
        decoding: chooses the lengths.
        vocab: special ids.
        template: ``[B, N]`` targets with ``<mask>`` symbols, the only candidate of each source if given.
    """
    if template is not None:
        return Canvas(template, pinned=template != vocab.mask), text_lengths(template, vocab)[:, None]
    lengths = decoding.candidate_lengths(logits)
    return length_canvas(vocab, lengths), lengths


def choose_length(
    source: Tensor, decoded: Decoded, lengths: Tensor, logits: Tensor, selection: Selection, vocab: Vocab
) -> Hypotheses:
    """Select one decoded candidate for each source; ``rows`` of the result are those that an observer has seen.

    Args:
        source: ``[B, S]`` sources.
        decoded: the candidates, those of a source consecutive.
        lengths: ``[B, m]``, those of the candidates before any was left out.
        logits: ``[B, L]`` of the length head.
        selection: chooses among the candidates of a source.
        vocab: special ids.
    """
    log_probs = logits.float().log_softmax(-1).gather(1, lengths).flatten()[decoded.rows]
    best = choose(source, decoded.tokens, decoded.scores, selection, vocab, length_log_probs=log_probs)
    return replace(best, rows=decoded.rows[best.rows], calls=mean_calls(decoded.calls, len(source)) + selection.calls)


def check_length_candidates(decoding: LengthCandidates, longest: int) -> None:
    """Raise a :class:`~rdm.errors.UserError` if ``decoding`` has more candidates than there are lengths."""
    candidates = decoding.length_candidates
    require(candidates <= longest, f"decoding.length_candidates={candidates}, but there are only {longest} lengths")
