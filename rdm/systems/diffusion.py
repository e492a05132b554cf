"""Discrete diffusion with an encoder-decoder denoiser: the four systems of the paper, and any other combination."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from rdm.data.batching import Batch
from rdm.decoding.sampler import Canvas, Observer, Sampler
from rdm.diffusion.likelihood import negative_log_likelihood
from rdm.diffusion.objective import Objective
from rdm.diffusion.pairing import Pairing
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import require
from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.systems.base import Hypotheses, Likelihood, System, Term
from rdm.vocab import Vocab


class DiffusionSystem(System):
    """A process, a way to draw noised copies, an objective and a denoiser.

    Args:
        length_factor: weight of the length loss (mean over sentences) beside the diffusion loss (mean over tokens).
    """

    def __init__(
        self,
        vocab: Vocab,
        process: DiffusionProcess,
        pairing: Pairing,
        objective: Objective,
        denoiser: EncoderDecoder,
        length_factor: float = 0.1,
    ) -> None:
        super().__init__()
        self.vocab = vocab
        self.process = process
        self.pairing = pairing
        self.objective = objective
        self.denoiser = denoiser
        self.length_factor = length_factor
        denoiser.restrict(process.noise.learnable)
        # The loss is a mean over the tokens that can be noised: with or without the special symbols.
        self.unit = "tokens" if process.noise.learnable[vocab.eos] else "ordinary"

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        corruption = self.pairing(self.process, batch.target, generator)
        memory = self.denoiser.encode(batch.source)
        logits = self.denoiser(corruption.x_t, corruption.t, memory, self.objective.positions(corruption))
        copies = len(corruption.x0) // len(batch.target)
        lengths = (batch.target != self.vocab.pad).sum(1) - 2  # without <bos> and <eos>
        return [
            Term("diffusion", self.objective(logits, corruption, self.process) / copies, self.unit),
            Term(
                "length",
                functional.cross_entropy(memory.length_logits.float(), lengths, reduction="sum"),
                "sentences",
                self.length_factor,
            ),
        ]

    @torch.inference_mode()
    def generate(
        self,
        source: Tensor,
        decoding: Sampler,
        generator: torch.Generator | None = None,
        observer: Observer | None = None,
    ) -> Hypotheses:
        memory = self.denoiser.encode(source)
        lengths = decoding.candidate_lengths(memory.length_logits)
        decoded = decoding.run(self.process, self._denoise(memory), self.canvas(lengths.flatten()), generator, observer)
        tokens, scores = decoded.tokens.unflatten(0, lengths.shape), decoded.scores.view(lengths.shape)
        chosen = decoding.selection(tokens, self.vocab.is_ordinary(tokens), scores)
        rows = torch.arange(len(source), device=source.device) * lengths.shape[1] + chosen
        return Hypotheses(decoded.tokens[rows], decoded.scores[rows], rows, candidates=tokens)

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """A bound on ``-log p(length | source) - log p(text | length, source)``."""
        memory, target = self.denoiser.encode(batch.source), batch.target
        lengths = (target != self.vocab.pad).sum(1) - 2
        text = negative_log_likelihood(self.process, self.objective, self._denoise(memory), target, draws, generator)
        length = functional.cross_entropy(memory.length_logits.float(), lengths, reduction="none")
        ends = (target == self.vocab.bos) | (target == self.vocab.eos)
        return Likelihood(
            nats=text + length,
            tokens=(self.process.learnable(target) & ~ends).sum(1) + 1,
            kind="bound" if self.objective.is_bound(self.process) else "surrogate",
        )

    def _denoise(self, memory: Memory) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return lambda tokens, t, positions: self.denoiser(tokens, t, memory, positions)

    def canvas(self, lengths: Tensor) -> Canvas:
        """Rows ``<bos> . . . <eos> <pad> ...`` with ``lengths [R]`` free positions each."""
        columns = torch.arange(int(lengths.max()) + 2, device=lengths.device)
        end = (lengths + 1)[:, None]
        tokens = torch.where(columns < end, self.vocab.mask, self.vocab.pad)
        tokens = torch.where(columns == end, self.vocab.eos, tokens)
        tokens[:, 0] = self.vocab.bos
        return Canvas(tokens, pinned=(columns == 0) | (columns >= end))

    def check(self, decoding: Sampler) -> None:
        steps, trained = decoding.steps, self.process.num_steps
        require(steps <= trained, f"decoding.steps={steps} is more than the diffusion.num_steps={trained} trained with")
        longest, candidates = self.denoiser.max_length, decoding.length_candidates
        require(candidates <= longest, f"decoding.length_candidates={candidates}, but there are only {longest} lengths")

    def fit_to(self, target_counts: Callable[[], Tensor]) -> None:
        self.process.noise.fit(target_counts)
