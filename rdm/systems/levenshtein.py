"""The Levenshtein Transformer (Gu et al., 2019): learns to delete tokens, insert placeholders and fill them."""

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import compute_logits, smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.levenshtein import LevenshteinDecoding, Observer
from rdm.edits import align, count_insertions, keep_tokens
from rdm.errors import UserError, require
from rdm.models.encoder_decoder import Memory
from rdm.models.levenshtein import LevenshteinEditor
from rdm.systems.base import Hypotheses, System
from rdm.terms import Term
from rdm.vocab import Vocab


class LevenshteinSystem(System):
    """Edits a text in rounds; the length follows from the edits, so there is no length head and no likelihood.

    Args:
        vocab: size and special ids.
        editor: the network.
        label_smoothing: of the tokens, spread over the ordinary ids.
        insertion_smoothing: of the numbers of placeholders.
    """

    predictable: Tensor

    def __init__(
        self,
        vocab: Vocab,
        editor: LevenshteinEditor,
        label_smoothing: float = 0.1,
        insertion_smoothing: float = 0.01,
    ) -> None:
        super().__init__()
        for name, value in (("label_smoothing", label_smoothing), ("insertion_smoothing", insertion_smoothing)):
            require(0 <= value < 1, f"system.{name} must lie in [0, 1), got {value}")
        self.vocab, self.editor = vocab, editor
        self.label_smoothing, self.insertion_smoothing = label_smoothing, insertion_smoothing
        # <unk> may be inserted by the oracle, because a target may contain it, but it is not written.
        self.register_buffer("predictable", vocab.select(without=vocab.specials))
        editor.restrict(self.predictable)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        """Return the losses of the three heads.

            insertion  y0 = gold with tokens deleted; numbers of placeholders by which the oracle repairs it
            tokens     y1 = y0 with these placeholders; the gold tokens there
            deletion   y2 = y1 filled by argmax, without a gradient; tokens that are not on the alignment to gold

        Each mean is over its own positions, whose number is replaced by its expectation: a share ``U(0, 1)`` of the
        ``n`` tokens is kept in y0, which then has ``n / 2 + 1`` gaps and ``n / 2`` missing tokens on average.
        """
        gold, memory = batch.target, self.editor.encode(batch.source)
        start, _ = keep_tokens(gold, self.draw_kept(gold, generator), self.vocab.pad)
        _, aligned = align(start, gold, self.vocab.pad)
        masked = torch.where(aligned | (gold == self.vocab.pad), gold, self.vocab.mask)
        tokens, guess = self._token_loss(gold, masked, memory)
        return [
            Term("insertion", self._insertion_loss(start, aligned, gold, memory), "tokens", 2.0),
            Term("tokens", tokens, "inner", 2.0),
            Term("deletion", self._deletion_loss(guess, gold, memory), "inner"),
        ]

    def draw_kept(self, gold: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw the tokens of ``gold [B, N]`` that are not deleted: a share ``U(0, 1)`` of each row, and its ends."""
        uniform = torch.rand(len(gold), gold.shape[1] + 1, device=gold.device, generator=generator)
        return (uniform[:, 1:] < uniform[:, :1]) | self._framing(gold)

    def _insertion_loss(self, start: Tensor, aligned: Tensor, gold: Tensor, memory: Memory) -> Tensor:
        counts = count_insertions(aligned, gold != self.vocab.pad, start.shape[1]).clamp(max=self.editor.placeholders)
        gaps = (start[:, 1:] != self.vocab.pad).nonzero(as_tuple=True)
        logits = self.editor.insertion(self.editor(start, memory))[gaps]
        return smoothed_cross_entropy(logits, counts[gaps], torch.ones_like(logits[0]), self.insertion_smoothing).sum()

    def _token_loss(self, gold: Tensor, masked: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return the loss at the masks and ``masked`` filled by argmax; ``<unk>`` is filled in, but not learned."""
        masks = (masked == self.vocab.mask).nonzero(as_tuple=True)
        logits = self.editor.filling(self.editor(masked, memory), masks)
        learned = self.predictable[gold[masks]]
        target = torch.where(learned, gold[masks], self.predictable.long().argmax())
        losses = smoothed_cross_entropy(logits, target, self.predictable, self.label_smoothing)
        guess = masked.index_put(masks, logits.detach().argmax(-1))
        return torch.where(learned, losses, 0.0).sum(), guess

    def _deletion_loss(self, guess: Tensor, gold: Tensor, memory: Memory) -> Tensor:
        kept, _ = align(guess, gold, self.vocab.pad)
        inner = self._inner(gold).nonzero(as_tuple=True)
        logits = self.editor.deletion(self.editor(guess, memory))[inner]
        return functional.cross_entropy(logits.float(), (~kept)[inner].long(), reduction="sum")

    def _framing(self, tokens: Tensor) -> Tensor:
        return (tokens == self.vocab.bos) | (tokens == self.vocab.eos)

    def _inner(self, tokens: Tensor) -> Tensor:
        return (tokens != self.vocab.pad) & ~self._framing(tokens)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Add the ``inner`` tokens: all but ``<bos>`` and ``<eos>``."""
        return {**super().counts(batch), "inner": self._inner(batch.target).sum()}

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: LevenshteinDecoding,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
        template: Tensor | None = None,
    ) -> Hypotheses:
        require(template is None, "template: the Levenshtein Transformer chooses the positions of its tokens itself")
        initial = source.new_tensor([[self.vocab.bos, self.vocab.eos]]).repeat(len(source), 1)
        editor = BoundEditor(self.editor, self.editor.encode(source))
        decoded = decoding.run(editor, initial, self.editor.max_length + 2, self.vocab, observer)
        return Hypotheses(decoded.tokens, decoded.scores, decoded.rows, calls=decoded.calls)

    def check(self, decoding: Decoding) -> None:
        if not isinstance(decoding, LevenshteinDecoding):
            raise UserError(f"system=levt needs decoding=levenshtein, not {decoding.name}")


class BoundEditor:
    """An editor bound to encoded sources (an :class:`~rdm.decoding.levenshtein.Editor`)."""

    def __init__(self, editor: LevenshteinEditor, memory: Memory) -> None:
        self.editor, self.memory = editor, memory
        self._rows, self._selected = torch.arange(len(memory), device=memory.mask.device), memory

    def _states(self, tokens: Tensor, rows: Tensor) -> Tensor:
        if not torch.equal(rows, self._rows):  # a copy, made only when rows are finished
            self._rows, self._selected = rows, self.memory.select(rows)
        return self.editor(tokens, self._selected)

    def deletion(self, tokens: Tensor, rows: Tensor) -> Tensor:
        return self.editor.deletion(self._states(tokens, rows))

    def insertion(self, tokens: Tensor, rows: Tensor) -> Tensor:
        return self.editor.insertion(self._states(tokens, rows))

    def filling(self, tokens: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        return compute_logits(self.editor.filling(self._states(tokens, rows), positions))
