"""Objectives that look at the model's own predictions, against computations token by token."""

import math

import pytest
import torch
from torch import Tensor

from rdm.diffusion.noise import Absorbing
from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.objective import Objective, ReweightedCrossEntropy
from rdm.diffusion.passes import Glancing, OwnPredictions
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Constant, Linear
from rdm.diffusion.schedule import Linear as LinearSchedule
from rdm.diffusion.token_weights import FocalCrossEntropy, PathWeightedCrossEntropy
from rdm.errors import UserError
from rdm.vocab import Vocab
from tests.diffusion.exact import seeded

STEPS = 4
VOCAB = Vocab(size=9)
PROCESS = DiffusionProcess(LinearSchedule(STEPS), Absorbing(VOCAB))
X0 = torch.tensor([[2, 5, 6, 7, 8, 3], [2, 8, 5, 3, 0, 0], [2, 6, 7, 5, 3, 0]])
X_T = torch.tensor([[2, 1, 6, 1, 1, 3], [2, 8, 1, 3, 0, 0], [2, 6, 7, 5, 3, 0]])
NOISED = NoisedBatch(x0=X0, x_t=X_T, t=torch.tensor([3, 1, 2]), learnable=PROCESS.learnable(X0))
ALLOWED = PROCESS.noise.learnable
LINEAR = [1 - (t - 1) / STEPS for t in (3, 1, 2)]


class TableDenoiser:
    """Logits that depend on the tokens of the row, the step and the position; all calls are recorded."""

    def __init__(self, seed: int = 0) -> None:
        generator = seeded(seed)
        self.own = torch.randn(VOCAB.size, VOCAB.size, generator=generator, dtype=torch.float64)
        self.place = torch.randn(6, VOCAB.size, generator=generator, dtype=torch.float64)
        self.scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        self.inputs: list[tuple[Tensor, Tensor, bool]] = []

    def logits(self, x_t: Tensor, t: Tensor) -> Tensor:
        rows = self.own[x_t].mean(1, keepdim=True) + self.own[x_t] + 0.1 * t[:, None, None]
        return (self.scale * (rows + self.place)).masked_fill(~ALLOWED, -3e4)

    def __call__(self, x_t: Tensor, t: Tensor, positions: Tensor | tuple[Tensor, ...]) -> Tensor:
        self.inputs.append((x_t, t, torch.is_grad_enabled()))
        return self.logits(x_t, t)[positions].float()


def cross_entropy(logits: Tensor, gold: int, smoothing: float) -> float:
    log_probs = logits.detach().log_softmax(-1)
    spread = sum(log_probs[i].item() for i in range(VOCAB.size) if ALLOWED[i]) / int(ALLOWED.sum())
    return -(1 - smoothing) * log_probs[gold].item() - smoothing * spread


def noisy_positions() -> list[tuple[int, int]]:
    return [(row, column) for row, column in (NOISED.x_t != NOISED.x0).nonzero().tolist()]


def total(objective: Objective, denoise: TableDenoiser, seed: int = 0) -> dict[str, float]:
    return {term.name: term.total.item() for term in objective.terms(denoise, NOISED, PROCESS, seeded(seed))}


def test_focal_loss() -> None:
    denoise, expected = TableDenoiser(), 0.0
    logits = denoise.logits(X_T, NOISED.t)
    for row, column in noisy_positions():
        loss = cross_entropy(logits[row, column], int(X0[row, column]), 0.0)
        expected += LINEAR[row] * 0.25 * (1 - math.exp(-loss)) ** 2 * loss
    assert total(FocalCrossEntropy(Linear()), denoise) == pytest.approx({"diffusion": expected}, rel=1e-5)


def test_gradient_of_the_focal_loss() -> None:
    """The gradient includes that of the factor; finite also where the token is certain."""
    objective = FocalCrossEntropy(Constant(), gamma=1.5, scale=1.0)
    logits = torch.tensor([[0.3, -0.2, 0.9, 0.1]], dtype=torch.float64)
    full = torch.full((1, VOCAB.size), -3e4, dtype=torch.float64)
    full[:, 5:9] = logits
    at = NoisedBatch(torch.tensor([6]), torch.tensor([1]), torch.tensor([2]), torch.tensor([True]))
    leaf = full.float().requires_grad_()
    objective.losses(leaf, at, PROCESS).sum().backward()
    exact = full.clone().requires_grad_()
    p = exact.softmax(-1)[0, 6]
    ((1 - p) ** 1.5 * -p.log()).backward()
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
    certain = torch.full((1, VOCAB.size), -3e4)
    certain[0, 6] = 30.0
    certain.requires_grad_()
    FocalCrossEntropy(Constant(), gamma=0.5).losses(certain, at, PROCESS).sum().backward()
    assert certain.grad.isfinite().all()


def test_path_weights() -> None:
    denoise, losses = TableDenoiser(), {}
    logits = denoise.logits(X_T, NOISED.t)
    for row, column in noisy_positions():
        gold = int(X0[row, column])
        losses[row, column] = LINEAR[row] * cross_entropy(logits[row, column], gold, 0.1)
    expected = 0.0
    for row in {row for row, _ in losses}:
        columns = [column for other, column in losses if other == row]
        powers = [math.exp(-cross_entropy(logits[row, c], int(X0[row, c]), 0.0) / 0.5) for c in columns]
        for column, power in zip(columns, powers, strict=True):
            expected += (1 + 2.0 * power / sum(powers)) * losses[row, column]
    objective = PathWeightedCrossEntropy(Linear(), 0.1, strength=2.0, temperature=0.5)
    assert total(objective, denoise) == pytest.approx({"diffusion": expected}, rel=1e-5)


@pytest.mark.parametrize(
    "objective",
    [FocalCrossEntropy(Linear(), gamma=0.0, scale=1.0), PathWeightedCrossEntropy(Linear(), 0.0, strength=0.0)],
    ids=["focal", "path"],
)
def test_without_strength_it_is_the_cross_entropy(objective: Objective) -> None:
    plain = total(ReweightedCrossEntropy(Linear(), 0.0), TableDenoiser())
    assert total(objective, TableDenoiser()) == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_second_pass_on_own_predictions(temperature: float) -> None:
    denoise = TableDenoiser()
    objective = OwnPredictions(Linear(), 0.1, temperature, factor=0.5)
    first, second = objective.terms(denoise, NOISED, PROCESS, seeded(1))
    (x_1, _, _), (x_2, t, _) = denoise.inputs
    assert torch.equal(x_1, X_T)
    assert torch.equal(t, NOISED.t)
    noisy = X_T != X0
    assert torch.equal(x_2[~noisy], X0[~noisy])
    assert ALLOWED[x_2[noisy]].all()
    logits = denoise.logits(X_T, NOISED.t)
    if temperature == 0:
        assert torch.equal(x_2[noisy], logits[noisy].argmax(-1))
    plain = total(ReweightedCrossEntropy(Linear(), 0.1), TableDenoiser())
    assert first.total.item() == pytest.approx(plain["diffusion"], rel=1e-5)
    again = denoise.logits(x_2, NOISED.t)
    expected = sum(
        LINEAR[row] * cross_entropy(again[row, column], int(X0[row, column]), 0.1)
        for row, column in NOISED.learnable.nonzero().tolist()
    )
    assert second.total.item() == pytest.approx(expected, rel=1e-5)
    assert (second.name, second.factor) == ("own_predictions", 0.5)


def test_own_predictions_are_drawn_from_the_model() -> None:
    """At temperature 1 the tokens of many draws follow the first pass's distribution."""
    denoise, draws = TableDenoiser(), 3000
    noised = NoisedBatch(
        *(x[:1].expand(draws, -1) for x in (X0, X_T)),
        NOISED.t[:1].expand(draws),
        NOISED.learnable[:1].expand(draws, -1),
    )
    OwnPredictions(Constant(), temperature=1.0).terms(denoise, noised, PROCESS, seeded(2))
    probs = denoise.logits(X_T[:1], NOISED.t[:1])[0, 1].detach().softmax(-1)
    shares = denoise.inputs[1][0][:, 1].bincount(minlength=VOCAB.size) / draws
    assert (shares - probs).abs().max() < 0.04


def test_glancing() -> None:
    denoise = TableDenoiser()
    (term,) = Glancing(Linear(), 0.1, ratio=0.5).terms(denoise, NOISED, PROCESS, seeded(3))
    (noise, last, with_gradient), (x_t, t, _) = denoise.inputs
    assert torch.equal(noise, torch.where(NOISED.learnable, 1, X0))
    assert (last == STEPS).all()
    assert not with_gradient
    wrong = ((denoise.logits(noise, last).argmax(-1) != X0) & NOISED.learnable).sum(1)
    revealed = (x_t == X0) & NOISED.learnable
    assert torch.equal(revealed.sum(1), wrong // 2)
    assert revealed.any()
    shares = revealed.sum(1) / NOISED.learnable.sum(1)
    assert torch.equal(t, PROCESS.step_keeping(shares.double()))
    logits = denoise.logits(x_t, t)
    expected = sum(
        (1 - (int(t[row]) - 1) / STEPS) * cross_entropy(logits[row, column], int(X0[row, column]), 0.1)
        for row, column in (NOISED.learnable & ~revealed).nonzero().tolist()
    )
    assert term.total.item() == pytest.approx(expected, rel=1e-5)


def test_glancing_at_a_perfect_model_reveals_nothing() -> None:
    def denoise(x_t: Tensor, t: Tensor, positions: tuple[Tensor, ...]) -> Tensor:
        return 20 * torch.nn.functional.one_hot(X0[positions], VOCAB.size).float()

    (term,) = Glancing(Constant(), 0.0).terms(denoise, NOISED, PROCESS, seeded(4))
    assert term.total.item() < 1e-4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FocalCrossEntropy(Linear(), gamma=-1), "gamma must be 0 or above"),
        (lambda: FocalCrossEntropy(Linear(), scale=0), "scale must be above 0"),
        (lambda: PathWeightedCrossEntropy(Linear(), temperature=0), "temperature must be above 0"),
        (lambda: OwnPredictions(Linear(), temperature=-1), "temperature must be 0 or above"),
        (lambda: OwnPredictions(Linear(), factor=0), "factor must be above 0"),
        (lambda: Glancing(Linear(), ratio=2), r"ratio must lie in \[0, 1\]"),
    ],
)
def test_options_are_checked(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=message):
        build()
