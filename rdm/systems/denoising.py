"""The base of diffusion systems over tokens: process, noised copies, objective and denoiser."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from rdm.cross_entropy import Logits, compute_logits
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.sampler import Canvas, Sampler
from rdm.diffusion.copies import NoisedCopies
from rdm.diffusion.noised import Denoise
from rdm.diffusion.objective import Objective
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import UserError, require
from rdm.masks import true_index
from rdm.models.denoiser import Denoiser
from rdm.models.encoder_decoder import Memory
from rdm.models.layers import Positions, TimeEmbedding
from rdm.models.self_conditioning import Guess, PreviousGuess
from rdm.models.wrapper import NetworkWrapper
from rdm.systems.base import System
from rdm.systems.cached import BlockCache, CachedDenoiser, TokenCache
from rdm.vocab import Vocab


class DenoisingSystem(System):
    """Trains a denoiser on noised copies of the targets.

    Args:
        vocab: size and special ids.
        process: the forward process.
        copies: draws the noised copies of a batch (config group ``diffusion/pairing``).
        objective: the training loss.
        denoiser: the network.
    """

    def __init__(
        self,
        vocab: Vocab,
        process: DiffusionProcess,
        copies: NoisedCopies,
        objective: Objective,
        denoiser: Denoiser,
    ) -> None:
        super().__init__()
        reads_steps = isinstance(getattr(denoiser, "time", None), TimeEmbedding)
        message = "diffusion.process.token_steps has no effect without a time embedding; add diffusion/time=sinusoids"
        require(reads_steps or not process.token_steps, message)
        objective.check(process)
        self.vocab = vocab
        self.process = process
        self.copies = copies
        self.objective = objective
        self.denoiser = denoiser
        denoiser.restrict(process.noise.learnable)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Add the ``ordinary`` tokens (no special symbols) and the counts of the objective."""
        learned = self.learned_tokens(batch)
        ordinary = self.vocab.is_ordinary(learned).sum()
        return {**super().counts(batch), "ordinary": ordinary, **self.objective.counts(learned, self.vocab)}

    def denoise(self, memory: Memory | None) -> "ActiveRows":
        """Bind the denoiser to encoded sources; its calls do not depend on each other.

        Samplers receive the result in ``Sampler.run``: guidance wraps it there.
        """
        return ActiveRows(self.denoiser, memory)

    def denoise_in_training(self, memory: Memory | None, generator: torch.Generator | None) -> Denoise:
        """Bind the denoiser to encoded sources, for the loss."""
        if self.remembers_guesses:
            return TrainedOnGuesses(self.denoiser, memory, generator)
        return BoundDenoiser(self.denoiser, memory)

    def denoise_canvas(
        self, memory: Memory | None, decoding: Sampler, canvas: Canvas
    ) -> "ActiveRows | RemembersGuess | CachedDenoiser":
        """Bind the denoiser to encoded sources, for the iterations of decoding ``canvas``.

        Unlike those of :meth:`denoise`, its calls may depend on the ones before: on the previous guess of a
        self-conditioned network, or on cached keys and values if ``decoding`` asks for them.
        """
        if self.remembers_guesses:
            return RemembersGuess(self.denoiser, memory)
        if decoding.token_cache is not None:
            return TokenCache(self.denoiser, memory, decoding.token_cache)
        if decoding.block_cache and decoding.block is not None:
            first = int((~canvas.pinned).any(0).long().argmax())
            return BlockCache(self.denoiser, memory, decoding.block, first)
        return self.denoise(memory)

    @property
    def remembers_guesses(self) -> bool:
        """Whether the network sees its previous guess."""
        return isinstance(getattr(self.denoiser, "self_conditioning", None), PreviousGuess)

    def likelihood_kind(self) -> Literal["exact", "bound", "surrogate"]:
        """Return what the negative log-likelihood of this system is."""
        return "bound" if self.objective.is_bound(self.process) else "surrogate"

    def as_sampler(self, decoding: Decoding) -> Sampler:
        """Return ``decoding`` if it fits this process; raise otherwise."""
        if not isinstance(decoding, Sampler):
            raise UserError(f"decoding={decoding.name} is not for diffusion over tokens; try decoding=rdm")
        decoding.check(self.process)
        ordered = not (decoding.transition.left_to_right and self.denoiser.looks_ahead)
        require(ordered, f"decoding={decoding.name} needs a causal network, e.g. system=any_order; try decoding=rdm")
        cached = decoding.block_cache or decoding.token_cache is not None
        possible = not cached or self.denoiser.runs_on_parts
        require(
            possible,
            "decoding: this network cannot be run on some positions only; use no cache",
        )
        if self.remembers_guesses:  # the guess of a row belongs to that row
            for key, unset in {"prune_after": None, "search": None, "block_cache": False, "token_cache": None}.items():
                message = f"decoding.{key} cannot be used with a self-conditioned model; leave it out"
                require(getattr(decoding, key) == unset, message)
        return decoding

    @staticmethod
    def check_template(decoding: Sampler, template: Tensor | None) -> None:
        """Raise if ``decoding`` cannot fill a ``template``."""
        reads_all = template is None or not decoding.transition.left_to_right
        message = f"decoding={decoding.name} predicts tokens from those before them, so it cannot fill a template"
        require(reads_all, message)

    def fit_to(self, target_counts: Callable[[], Tensor]) -> None:
        self.process.noise.fit(target_counts)


class BoundDenoiser:
    """A denoiser bound to encoded sources (a :data:`~rdm.diffusion.noised.Denoise`).

    Args:
        denoiser: the network.
        memory: the encoded sources; None for a network without encoder.
    """

    def __init__(self, denoiser: NetworkWrapper, memory: Memory | None) -> None:
        self.denoiser, self.memory = denoiser, memory

    def __call__(self, x_t: Tensor, t: Tensor, positions: Positions) -> Logits:
        return self.denoiser(x_t, t, self.memory, positions)


def positions_of(mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Row and column of the ``count`` true values of a mask ``[R, N]``, in row-major order."""
    index = true_index(mask, count)
    return index // mask.shape[1], index % mask.shape[1]


class ActiveRows(BoundDenoiser):
    """Runs the denoiser only where a position is requested; ``positions`` must be a mask.

    Sources without a request are left out. Of the others as many copies are run as the busiest of them needs, since a
    source has equally many copies in a batch.

    The number of positions of each row is read once, the only device synchronisation of a call.
    """

    def __init__(self, denoiser: NetworkWrapper, memory: Memory | None) -> None:
        super().__init__(denoiser, memory)
        self._sources: list[bool] = []
        self._selected = memory

    def __call__(self, x_t: Tensor, t: Tensor, positions: Positions) -> Tensor:
        assert isinstance(positions, Tensor)
        sources = len(x_t) if self.memory is None else len(self.memory)
        copies = len(x_t) // sources
        requested = positions.sum(1).view(sources, copies)
        counts: list[list[int]] = requested.tolist()
        busy = [sum(count > 0 for count in row) for row in counts]
        if not any(busy):
            return torch.zeros(0, self.denoiser.network.vocab.size, device=x_t.device)
        total = sum(map(sum, counts))
        if min(busy) > 0 and max(busy) == copies:
            return compute_logits(super().__call__(x_t, t, positions_of(positions, total)))
        active = [count > 0 for count in busy]
        index = true_index(requested.any(1), sum(active))
        if self.memory is not None and active != self._sources:
            # A copy, made only when the set of active sources changes.
            self._sources, self._selected = active, self.memory.select(index)
        # Rows with a request first, in their order: the requested positions keep their row-major order.
        first = (requested[index] > 0).int().argsort(dim=1, descending=True, stable=True)[:, : max(busy)]
        rows = (index[:, None] * copies + first).flatten()
        chosen = positions_of(positions[rows], total)
        return compute_logits(self.denoiser(x_t[rows], t[rows], self._selected, chosen))


class TrainedOnGuesses(BoundDenoiser):
    """Makes a guess without gradient, and shows it to a random part of the rows in a second pass.

    Args:
        denoiser: a network with :class:`~rdm.models.self_conditioning.PreviousGuess`.
        memory: the encoded sources.
        generator: draws which rows see the guess.
    """

    def __init__(self, denoiser: Denoiser, memory: Memory | None, generator: torch.Generator | None) -> None:
        super().__init__(denoiser, memory)
        self.generator = generator

    def __call__(self, x_t: Tensor, t: Tensor, positions: Positions) -> Logits:
        conditioning = self.denoiser.self_conditioning
        assert isinstance(conditioning, PreviousGuess)
        uniform = torch.rand(len(x_t), device=x_t.device, generator=self.generator)
        with torch.no_grad():
            guess = predict(super().__call__(x_t, t, positions), x_t, positions)
        shown = uniform < conditioning.probability
        return self.denoiser(x_t, t, self.memory, positions, Guess(guess, shown))


class RemembersGuess(BoundDenoiser):
    """Shows the guess of each call to the next one; the first call has none. Rows must stay the same."""

    guess: Guess | None = None

    def __call__(self, x_t: Tensor, t: Tensor, positions: Positions) -> Tensor:
        logits = compute_logits(self.denoiser(x_t, t, self.memory, positions, self.guess))
        self.guess = Guess(predict(logits, x_t, positions), torch.ones(len(x_t), device=x_t.device))
        return logits


def predict(logits: Logits, x_t: Tensor, positions: Positions) -> Tensor:
    """Return ``x_t [R, N]`` with the most likely tokens of ``logits [P, V]`` at the positions."""
    predicted = x_t.clone()
    predicted[positions] = logits.argmax(-1)
    return predicted
