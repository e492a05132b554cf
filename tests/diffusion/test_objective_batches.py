"""Objectives as losses of a batch: sums, padding, gradients, precision."""

from itertools import product

import pytest
import torch
from torch import Tensor

from rdm.diffusion.noised import NoisedBatch
from rdm.diffusion.objective import Objective, VariationalBound
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.schedule import Table
from rdm.vocab import Vocab
from tests.diffusion.exact import (
    NOISES,
    ORDINARY,
    STEPS,
    VOCAB,
    build_noise,
    build_process,
    build_schedule,
    seeded,
)
from tests.diffusion.objectives import (
    BARRED,
    EVERY_CASE,
    OBJECTIVES,
    SIMPLE,
    corruption_of,
    random_batch,
    total,
)

# --- Sums over positions ---


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_sum_over_rows_and_positions(noise: str, name: str) -> None:
    """The loss of a batch is the sum of the losses of its tokens, each with the step of its row."""
    objective, process = OBJECTIVES[name], build_process(noise, "sqrt")
    noised, logits = random_batch(process, seed=2)
    parts = 0.0
    for row, column in product(*map(range, noised.x0.shape)):
        one = NoisedBatch(
            x0=noised.x0[row, column].view(1, 1),
            x_t=noised.x_t[row, column].view(1, 1),
            t=noised.t[row].view(1),
            learnable=noised.learnable[row, column].view(1, 1),
        )
        part = total(objective, one, logits[row, column].view(1, 1, -1), process).item()
        assert part == 0 or one.learnable.item()
        parts += part
    whole = total(objective, noised, logits, process)
    assert whole.shape == ()
    assert whole.item() == pytest.approx(parts, rel=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_padding_does_not_change_the_loss(noise: str, name: str) -> None:
    """Columns of padding, with any logits, change neither the positions nor the loss."""
    objective, process = OBJECTIVES[name], build_process(noise, "linear")
    noised, logits = random_batch(process, seed=3)
    rows = len(noised.t)
    pads, wild = torch.full((rows, 3), VOCAB.pad), 50 * torch.randn(rows, 3, VOCAB.size, generator=seeded())
    x0 = torch.cat([pads, noised.x0, pads], 1)
    x_t = torch.cat([pads, noised.x_t, pads], 1)
    padded = NoisedBatch(x0=x0, x_t=x_t, t=noised.t, learnable=process.learnable(x0))
    assert torch.equal(objective.positions(padded)[:, 3:-3], objective.positions(noised))
    assert not objective.positions(padded)[x0 == VOCAB.pad].any()
    loss = total(objective, padded, torch.cat([wild, logits, wild], 1), process)
    assert torch.equal(loss, total(objective, noised, logits, process))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_batch_without_noisy_tokens(name: str) -> None:
    """A batch of padding, or without noised tokens, has zero loss and finite gradients."""
    objective, process = OBJECTIVES[name], build_process("uniform", "linear")
    for tokens in ([[0, 0]], [[0, 3]]):
        noised = corruption_of(process, tokens, tokens, [1])
        logits = torch.zeros(1, 2, VOCAB.size).masked_fill(~process.noise.learnable, BARRED).requires_grad_()
        loss = total(objective, noised, logits, process)
        loss.backward()
        assert logits.grad.isfinite().all()
        if not (name == "bound" and 3 in tokens[0]):
            assert loss.item() == 0


# --- Numerical health ---


def assert_finite_gradients(
    objective: Objective, process: DiffusionProcess, x0: Tensor, t: int, logits: Tensor
) -> None:
    """Value and gradient are finite, and the gradient is not zero. Half the tokens are noised; at T, all are."""
    steps = torch.full((len(x0),), t)
    kept = (torch.rand(x0.shape, generator=seeded()) < 0.5) & (t < process.num_steps)
    x_t = torch.where(kept | ~process.learnable(x0), x0, process.noise.sample(x0, seeded(2)))
    noised = NoisedBatch(x0=x0, x_t=x_t, t=steps, learnable=process.learnable(x0))
    leaf = logits.masked_fill(~process.noise.learnable, BARRED).requires_grad_()
    loss = total(objective, noised, leaf, process)
    loss.backward()
    assert 0 < loss.item() < float("inf")
    assert leaf.grad.isfinite().all()
    assert leaf.grad.any()
    assert not leaf.grad[~objective.positions(noised)].any()


@pytest.mark.parametrize("scale", [1.0, 300.0], ids=["soft", "certain"])
@pytest.mark.parametrize("t", [1, STEPS])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(("noise", "schedule"), EVERY_CASE)
def test_gradients_are_finite(noise: str, schedule: str, name: str, t: int, scale: float) -> None:
    """At the first and last step, in float32, also for a denoiser that is certain and wrong."""
    x0 = torch.tensor(ORDINARY).repeat(6, 3)
    x0[:, -1] = VOCAB.pad
    logits = scale * torch.randn(*x0.shape, VOCAB.size, generator=seeded(1))
    assert_finite_gradients(OBJECTIVES[name], build_process(noise, schedule), x0, t, logits)


@pytest.mark.parametrize("t", [1, 25, 50])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_gradients_are_finite_for_a_large_vocabulary(noise: str, name: str, t: int) -> None:
    """The same with 50,000 ids and 50 steps."""
    vocab = Vocab(size=50_000)
    counts = torch.arange(vocab.size)
    schedule = build_schedule("linear" if noise == "absorbing" else "cosine", 50)
    process = DiffusionProcess(schedule, build_noise(noise, vocab, counts))
    x0 = torch.randint(5, vocab.size, (4, 5), generator=seeded())
    x0[0, -1] = vocab.pad
    logits = torch.randn(4, 5, vocab.size, generator=seeded(1))
    assert_finite_gradients(OBJECTIVES[name], process, x0, t, logits)


@pytest.mark.parametrize("noise", NOISES)
def test_gradient_of_the_bound_where_alpha_is_zero_before_the_last_step(noise: str) -> None:
    """At T nothing can be learned: the gradient is 0, not NaN."""
    process = DiffusionProcess(Table([1, 0.5, 0, 0]), build_noise(noise))
    x0 = torch.tensor([ORDINARY])
    x_t = process.corrupt(x0, torch.tensor([3]), seeded())
    logits = torch.randn(1, 4, VOCAB.size, generator=seeded())
    logits = logits.masked_fill(~process.noise.learnable, BARRED).requires_grad_()
    noised = NoisedBatch(x0=x0, x_t=x_t, t=torch.tensor([3]), learnable=process.learnable(x0))
    loss = total(VariationalBound(), noised, logits, process)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert logits.grad.abs().max().item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("noise", NOISES)
def test_half_precision_logits(noise: str, name: str) -> None:
    """Logits in bfloat16 are summed in float32: the loss is that of the same numbers in float32."""
    objective, process = OBJECTIVES[name], build_process(noise, "cosine")
    noised, logits = random_batch(process, seed=4)
    half = logits.bfloat16()
    loss = total(objective, noised, half, process)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, total(objective, noised, half.float(), process))


@pytest.mark.parametrize("noise", NOISES)
def test_perfect_denoiser_has_zero_loss(noise: str) -> None:
    """A denoiser that knows ``x_0`` reaches the minimum 0 of the bound and of the simple loss."""
    process = build_process(noise, "linear")
    noised, logits = random_batch(process, seed=5)
    perfect = torch.full_like(logits, BARRED).scatter(2, noised.x0[..., None], 0.0)
    for objective in (SIMPLE, VariationalBound()):
        assert total(objective, noised, perfect, process).item() == pytest.approx(0, abs=1e-4)
        assert total(objective, noised, logits, process).item() > 1
