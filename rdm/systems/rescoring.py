"""Selection of candidates by another model: the teacher."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rdm.data.codec import Codec, Rows
from rdm.decoding.candidates import CandidateSet, Selection
from rdm.errors import require
from rdm.systems.base import System


class TeacherScore(Selection):
    """Chooses the candidate with the highest mean log-probability per token (``<eos>`` included) of a teacher.

    Ids are passed on if both models have the same tokenizer. Otherwise sources and candidates are decoded and encoded
    again, and a word that is unknown to the student is missing from what the teacher reads. Sources are truncated to
    the teacher's maximum length; a candidate that exceeds it is chosen only if all candidates of its source do.

    Args:
        teacher: a seq2seq system with a likelihood.
        teacher_codec: codec of the teacher.
        codec: codec of the model whose candidates are selected.
        origin: what result rows record about the teacher.
        own: whether the model chooses among its own candidates; then scoring counts as one of its calls.
    """

    def __init__(
        self, teacher: System, teacher_codec: Codec, codec: Codec, origin: Mapping[str, Any], own: bool = False
    ) -> None:
        require(not teacher.open_ended, "rescore: the teacher has no source; name a run of system=ar")
        self.teacher, self.teacher_codec, self.codec = teacher, teacher_codec, codec
        self.origin, self.calls = dict(origin), int(own)
        self.same_tokenizer = codec.tokenizer.fingerprint() == teacher_codec.tokenizer.fingerprint()

    def describe(self) -> dict[str, Any]:
        return {"class": type(self).__name__, **self.origin}

    def scores(self, candidates: CandidateSet) -> Tensor:
        """Return the teacher's mean log-probability per token of every candidate ``[B, m]``."""
        count, limit = candidates.tokens.shape[1], self.teacher_codec.max_length
        vocab = self.codec.vocab
        framing = torch.tensor([vocab.bos, vocab.eos, vocab.pad], device=candidates.sources.device)
        read = self._teacher_rows(candidates.sources, ~torch.isin(candidates.sources, framing))
        written = self._teacher_rows(candidates.tokens.flatten(0, 1), candidates.text.flatten(0, 1))
        sources = [row[:limit] for row in read for _ in range(count)]
        batch = self.teacher_codec.batch(sources, [row[:limit] for row in written])
        device = next(self.teacher.parameters()).device
        batch.source, batch.target = batch.source.to(device), batch.target.to(device)
        likelihood = self.teacher.rescoring_likelihood(batch)
        require(likelihood is not None, f"rescore: {type(self.teacher).__name__} has no likelihood")
        assert likelihood is not None
        means = -likelihood.nats / likelihood.tokens
        too_long = torch.tensor([len(row) > limit for row in written], device=device)
        return means.masked_fill(too_long, float("-inf")).view(-1, count).to(candidates.tokens.device)

    def _teacher_rows(self, tokens: Tensor, included: Tensor) -> Rows:
        """Return the ``included`` ids of ``tokens [R, N]`` as ids of the teacher, without special symbols."""
        rows = [row[kept].tolist() for row, kept in zip(tokens.cpu(), included.cpu(), strict=True)]
        return rows if self.same_tokenizer else self.teacher_codec.tokenizer.encode(self.codec.decode(rows))
