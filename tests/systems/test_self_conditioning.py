"""Self-conditioning: what the network sees of its previous guess, in training and in decoding."""

import pytest
import torch
from torch import Tensor, nn

from rdm.decoding.sampler import Sampler
from rdm.describe import with_argument
from rdm.errors import UserError
from rdm.models.denoiser import Seq2SeqDenoiser
from rdm.models.self_conditioning import Guess, PreviousGuess
from rdm.systems.denoising import RemembersGuess, TrainedOnGuesses
from rdm.systems.diffusion import DiffusionSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, overfit, sampler, tiny_system

VOCAB = Vocab(size=20)
PAIRS = [([5 + i, 6 + i, 7 + i], [6 + (i * 3 + j) % 12 for j in range(2 + i % 4)]) for i in range(8)]
BATCH = batch_from(VOCAB, PAIRS)


def conditioned_system(seed: int = 0) -> DiffusionSystem:
    torch.manual_seed(seed)
    system = tiny_system(VOCAB)
    network = system.denoiser.network
    denoiser = Seq2SeqDenoiser(network, system.denoiser.time, self_conditioning=PreviousGuess(network.dim))
    parts = {"process": system.process, "copies": system.copies, "objective": system.objective}
    return DiffusionSystem(denoiser, length_factor=0.1, vocab=VOCAB, **parts)


class Recorder(nn.Module):
    """Records the guesses that a denoiser is given."""

    def __init__(self, denoiser: Seq2SeqDenoiser) -> None:
        super().__init__()
        self.denoiser, self.guesses = denoiser, list[Guess | None]()
        self.self_conditioning = denoiser.self_conditioning

    def forward(self, *inputs: Tensor, guess: Guess | None = None) -> Tensor:
        self.guesses.append(inputs[4] if len(inputs) > 4 else guess)
        return self.denoiser(*inputs)


@torch.no_grad()
def test_only_shown_guesses_change_the_output() -> None:
    denoiser = conditioned_system().denoiser.eval()
    x_t, t = BATCH.target.clone(), torch.full((8,), 3)
    x_t[:, 1] = VOCAB.mask
    memory, shown = denoiser.encode(BATCH.source), torch.arange(8) % 2 == 0
    plain = denoiser(x_t, t, memory)
    guess = Guess(BATCH.target, shown)
    assert torch.equal(denoiser(x_t, t, memory, guess=guess), plain)  # untrained
    nn.init.normal_(denoiser.self_conditioning.weight)
    changed = (denoiser(x_t, t, memory, guess=guess) != plain).flatten(1).any(1)
    assert torch.equal(changed, shown)


@torch.no_grad()
def test_decoding_shows_each_guess_to_the_next_call() -> None:
    denoiser = conditioned_system().denoiser.eval()
    nn.init.normal_(denoiser.self_conditioning.weight)
    recorder = Recorder(denoiser)
    denoise = RemembersGuess(recorder, denoiser.encode(BATCH.source))  # type: ignore[arg-type]
    x_t, t = BATCH.target.clone(), torch.full((8,), 3)
    x_t[:, 1] = VOCAB.mask
    positions = x_t == VOCAB.mask
    logits = denoise(x_t, t, positions)
    expected = x_t.clone()
    expected[:, 1] = logits.argmax(-1)
    assert not torch.equal(denoise(x_t, t, positions), logits)
    first, second = recorder.guesses
    assert first is None
    assert second is not None
    assert torch.equal(second.tokens, expected)
    assert second.shown.all()


def test_training_shows_the_guess_to_half_of_the_rows() -> None:
    denoiser = conditioned_system().denoiser
    recorder = Recorder(denoiser)
    rows = 400
    source, x_t = torch.tensor([[2, 5, 3]]), torch.tensor([[2, 1, 7, 3]]).expand(rows, -1)
    positions = (x_t == VOCAB.mask).nonzero(as_tuple=True)
    generator = torch.Generator().manual_seed(0)
    denoise = TrainedOnGuesses(recorder, denoiser.encode(source), generator)  # type: ignore[arg-type]
    logits = denoise(x_t, torch.full((rows,), 3), positions)
    first, second = recorder.guesses
    assert first is None
    assert second is not None
    assert 0.4 < second.shown.float().mean() < 0.6
    assert (second.tokens[:, 1] == logits[0].argmax()).all()  # untrained: the guess changes nothing
    assert torch.equal(second.tokens[:, 2:], x_t[:, 2:])
    logits.sum().backward()
    assert denoiser.self_conditioning.weight.grad is not None


def test_learns_by_heart_and_scores_without_memory() -> None:
    """The loss trains the map; decoding is exact; likelihoods do not depend on earlier calls."""
    system = conditioned_system()
    overfit(system, BATCH, steps=150, lr=5e-3)
    assert system.denoiser.self_conditioning.weight.abs().max() > 1e-3
    tokens = system.generate(BATCH.source, sampler(candidates=1), torch.Generator().manual_seed(0)).tokens
    assert torch.equal(tokens, BATCH.target)
    nats = [system.likelihood(BATCH, 2, torch.Generator().manual_seed(1)).nats for _ in range(2)]
    assert torch.equal(*nats)


def test_pruning_is_refused() -> None:
    decoding = with_argument(sampler(), "prune_after", 2)
    assert isinstance(decoding, Sampler)
    tiny_system(VOCAB).check(decoding)
    with pytest.raises(UserError, match=r"decoding\.prune_after cannot be used with a self-conditioned model"):
        conditioned_system().check(decoding)
