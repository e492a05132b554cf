"""What every diffusion system shares: the mathematics and the denoiser, whatever the denoiser is given to read."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from rdm.decoding.base import Decoding
from rdm.decoding.sampler import Denoise, Sampler
from rdm.diffusion.objective import Objective
from rdm.diffusion.pairing import Pairing
from rdm.diffusion.process import Corruption, DiffusionProcess
from rdm.errors import UserError
from rdm.models.encoder_decoder import Memory
from rdm.models.layers import Positions
from rdm.systems.base import System, Term
from rdm.vocab import Vocab


class Denoises(Protocol):
    """A network that guesses the clean text; ``memory`` is what it has read of a source, None where there is none."""

    def __call__(self, x_t: Tensor, t: Tensor, memory: Any, positions: Positions | None = None) -> Tensor:
        """Logits ``[P, V]`` at the ``positions`` of noised tokens ``[R, N]`` at steps ``[R]``."""

    def restrict(self, predictable: Tensor) -> None:
        """Never predict the ids that are false in ``predictable [V]``."""


class DenoisingSystem(System):
    """A process, a way to draw noised copies, an objective and a denoiser."""

    def __init__(
        self,
        vocab: Vocab,
        process: DiffusionProcess,
        pairing: Pairing,
        objective: Objective,
        denoiser: Denoises,
    ) -> None:
        super().__init__()
        self.vocab = vocab
        self.process = process
        self.pairing = pairing
        self.objective = objective
        self.denoiser = denoiser
        denoiser.restrict(process.noise.learnable)
        # The loss is a mean over the tokens that can be noised: with or without the special symbols.
        self.unit = "tokens" if process.noise.learnable[vocab.eos] else "ordinary"

    def diffusion_term(self, corruption: Corruption, memory: Any, sentences: int) -> Term:
        """The objective, as a mean over the noised copies of each of the ``sentences``."""
        positions = self.objective.positions(corruption).nonzero(as_tuple=True)  # a GPU is waited for, only here
        logits = self.denoiser(corruption.x_t, corruption.t, memory, positions)
        losses = self.objective.losses(logits, corruption.at(positions), self.process)
        copies = len(corruption.x0) // sentences
        return Term("diffusion", losses.sum() / copies, self.unit)

    def _denoise(self, memory: Memory | None) -> Denoise:
        """The denoiser as a sampler calls it; sources about which nothing is asked any more are left out."""
        kept: Tensor | None = None
        rest = memory

        def denoise(tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
            nonlocal kept, rest
            sources = len(tokens) if memory is None else len(memory)
            asked = positions.reshape(sources, -1).any(1)
            if asked.all():
                return self.denoiser(tokens, t, memory, positions)
            if not asked.any():
                return torch.zeros(0, self.vocab.size, device=tokens.device)
            rows = asked.repeat_interleave(len(tokens) // sources)
            if memory is not None and (kept is None or not torch.equal(kept, asked)):
                kept, rest = asked, memory.select(asked)  # a copy, made when sources leave and not at every iteration
            return self.denoiser(tokens[rows], t[rows], rest, positions[rows])

        return denoise

    def likelihood_kind(self) -> Literal["bound", "surrogate"]:
        """What the negative log-likelihood of such a system is."""
        return "bound" if self.objective.is_bound(self.process) else "surrogate"

    def as_sampler(self, decoding: Decoding) -> Sampler:
        """The strategy, checked to be one for this process."""
        if not isinstance(decoding, Sampler):
            raise UserError(f"decoding={decoding.name} is not for diffusion over tokens; try decoding=rdm")
        decoding.check(self.process)
        return decoding

    def fit_to(self, target_counts: Callable[[], Tensor]) -> None:
        self.process.noise.fit(target_counts)
