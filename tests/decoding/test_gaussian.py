"""The sampling loop of Gaussian diffusion, with fixed predictions."""

import math

import pytest
import torch
from torch import Tensor

from rdm.decoding.gaussian import GaussianSampler
from rdm.decoding.trace import Trace
from rdm.diffusion.gaussian import GaussianProcess, nearest, normal
from rdm.diffusion.schedule import Sqrt
from rdm.errors import UserError
from tests.decoding.helpers import seeded

PROCESS = GaussianProcess(Sqrt(20, 1e-4))
EMBEDDINGS = normal(torch.empty(9, 6), seeded(0))
WORDS = torch.tensor([[1, 5, 7, 2], [8, 8, 0, 3]])
NOISE = normal(torch.empty(2, 4, 6), seeded(1))


class Oracle:
    """Always predicts ``z0``; stores the inputs of all calls."""

    def __init__(self, z0: Tensor) -> None:
        self.z0, self.seen, self.steps, self.guesses = z0, list[Tensor](), list[int](), list[Tensor | None]()

    def __call__(self, z: Tensor, t: Tensor, guess: Tensor | None) -> Tensor:
        assert t.shape == (2,)
        assert (t == t[0]).all()
        self.guesses.append(guess)
        self.seen.append(z)
        self.steps.append(int(t[0]))
        return self.z0


@pytest.mark.parametrize(("iterations", "steps"), [(1, [20]), (3, [20, 14, 7]), (20, list(range(20, 0, -1)))])
@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_visits_steps_evenly(iterations: int, steps: list[int], eta: float) -> None:
    oracle = Oracle(EMBEDDINGS[WORDS])
    words, _ = GaussianSampler("x", iterations, eta).run(PROCESS, oracle, EMBEDDINGS, NOISE, seeded())
    assert oracle.steps == steps
    assert torch.equal(words, WORDS)
    assert torch.equal(oracle.seen[0], NOISE)


@pytest.mark.parametrize("iterations", [1, 4, 20])
def test_ddim_returns_the_true_point(iterations: int) -> None:
    """With the true ``z_0`` as prediction, the noise is that of ``z_T`` at every step and 0 at the end."""
    z0 = normal(torch.empty(2, 4, 6), seeded(2))
    oracle, state = Oracle(z0), (generator := seeded(3)).get_state()
    _, guess = GaussianSampler("x", iterations, eta=0.0, clamp=False).run(PROCESS, oracle, EMBEDDINGS, NOISE, generator)
    assert torch.equal(guess, z0)
    assert torch.equal(generator.get_state(), state)  # no random numbers were used
    first = float(PROCESS.alpha[20])
    eps = (NOISE - math.sqrt(first) * z0) / math.sqrt(1 - first)
    for t, z in zip(oracle.steps, oracle.seen, strict=True):
        alpha = float(PROCESS.alpha[t])
        torch.testing.assert_close(z, math.sqrt(alpha) * z0 + math.sqrt(1 - alpha) * eps)
    mean, std = PROCESS.back(oracle.seen[-1], z0, oracle.steps[-1], 0, eta=0.0)
    assert std == 0
    assert torch.equal(mean, z0)


def test_posterior_steps_sample() -> None:
    """From the same initial noise, points differ by seed and follow ``q(z_t | z_0)`` at every step."""
    z0 = torch.zeros(2, 4000, 6)
    oracle, again = Oracle(z0), Oracle(z0)
    noise = normal(z0, seeded(1))
    for seed, guesses in enumerate((oracle, again)):
        GaussianSampler("x", 5, clamp=False).run(PROCESS, guesses, EMBEDDINGS, noise, seeded(seed + 7))
    assert torch.equal(oracle.seen[0], again.seen[0])
    for t, z, other in list(zip(oracle.steps, oracle.seen, again.seen, strict=True))[1:]:
        assert not torch.equal(z, other)
        variance = 1 - float(PROCESS.alpha[t])
        assert float(z.var()) == pytest.approx(variance, abs=5 * variance * math.sqrt(2 / z.numel()))


@pytest.mark.parametrize("clamp", [True, False])
def test_clamping_rounds_predictions_to_words(clamp: bool) -> None:
    near = EMBEDDINGS[WORDS] + 0.05
    assert torch.equal(nearest(near, EMBEDDINGS), WORDS)
    oracle = Oracle(near)
    words, guess = GaussianSampler("x", 2, eta=0.0, clamp=clamp).run(PROCESS, oracle, EMBEDDINGS, NOISE)
    used = EMBEDDINGS[WORDS] if clamp else near
    assert torch.equal(oracle.seen[1], PROCESS.back(NOISE, used, 20, 10, eta=0.0)[0])
    assert torch.equal(guess, near)
    assert torch.equal(words, WORDS)


@pytest.mark.parametrize("clamp", [True, False])
def test_trace_of_words(clamp: bool) -> None:
    """A position is noise if its nearest word is not the predicted one; the last frame is the text."""
    oracle, trace = Oracle(EMBEDDINGS[WORDS] + 0.01), Trace()
    words, _ = GaussianSampler("x", 10, clamp=clamp).run(PROCESS, oracle, EMBEDDINGS, NOISE, seeded(), trace)
    assert [frame.iteration for frame in trace.frames] == list(range(11))
    for frame, z in zip(trace.frames[:-1], oracle.seen, strict=True):
        assert torch.equal(frame.tokens, nearest(z, EMBEDDINGS))
        assert torch.equal(frame.noisy, (frame.tokens != WORDS) | (frame.iteration == 0))
    assert any(0 < int(frame.noisy.sum()) < 8 for frame in trace.frames)
    # The prediction is constant, and so are the probabilities of its words.
    rounding = ((EMBEDDINGS[WORDS] + 0.01) @ EMBEDDINGS.T).softmax(-1).gather(-1, WORDS[..., None]).squeeze(-1)
    for frame in trace.frames[1:]:
        torch.testing.assert_close(frame.confidence, rounding)
    assert torch.equal(trace.frames[-1].tokens, words)
    assert not trace.frames[-1].noisy.any()


def test_each_prediction_conditions_the_next() -> None:
    """The prediction itself, not the word it is rounded to."""
    near = EMBEDDINGS[WORDS] + 0.05
    oracle = Oracle(near)
    GaussianSampler("x", 3, clamp=True).run(PROCESS, oracle, EMBEDDINGS, NOISE, seeded())
    assert oracle.guesses[0] is None
    assert all(guess is not None and torch.equal(guess, near) for guess in oracle.guesses[1:])
    assert len(oracle.guesses) == 3


def test_observer_has_no_effect() -> None:
    runs = [
        GaussianSampler("x", 5).run(PROCESS, lambda z, t, guess: z + 0.1, EMBEDDINGS, NOISE, seeded(), observer)
        for observer in (None, Trace())
    ]
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])


def test_description() -> None:
    sampler = GaussianSampler("mine", 7, eta=0.0, clamp=False, samples=3)
    assert (sampler.name, sampler.steps, sampler.candidates) == ("mine", 7, 3)
    assert sampler.describe() == {
        "class": "GaussianSampler",
        "name": "mine",
        "steps": 7,
        "eta": 0.0,
        "clamp": False,
        "samples": 3,
        "selection": None,
    }
    assert len({str(GaussianSampler("x", 7, *options).describe()) for options in [(0.0,), (1.0,), (1.0, False)]}) == 3


@pytest.mark.parametrize(
    ("options", "message"), [({"steps": 0}, "steps"), ({"eta": 1.5}, "eta"), ({"samples": 0}, "samples")]
)
def test_invalid_arguments(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=f"decoding.{message} must"):
        GaussianSampler(**{"name": "x", "steps": 1, **options})  # type: ignore[arg-type]
