"""``diffusion.process.token_steps``: the network reads a step for each token, in training and in decoding alike."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from rdm.decoding.blocks import Blocks
from rdm.decoding.routing import Commit, PosteriorStep, Unconditional
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.decoding.transition import Outcome, State
from rdm.diffusion.copies import UniformMasks
from rdm.diffusion.correction import MaskAndCorrect, Smart
from rdm.diffusion.objective import Objective
from rdm.diffusion.passes import Glancing, OwnPredictions
from rdm.diffusion.reweighting import Constant
from rdm.diffusion.token_weights import PathWeightedCrossEntropy
from rdm.errors import UserError
from rdm.systems.diffusion import DiffusionSystem
from rdm.vocab import Vocab
from tests.builders import STEPS, batch_from, reweighted, tiny_system
from tests.decoding.helpers import seeded
from tests.scripts import script

VOCAB = Vocab(size=30)
BATCH = batch_from(VOCAB, [([5, 6, 7, 8], [9, 10, 11, 12]), ([9, 8], [7, 5])])


@pytest.fixture
def system() -> DiffusionSystem:
    torch.manual_seed(0)
    system = tiny_system(VOCAB, "rdm_multinomial")
    system.process.token_steps = True
    return system


def record(system: DiffusionSystem) -> list[tuple[Tensor, Tensor]]:
    """The tokens and steps of every call of the network from now on."""
    calls: list[tuple[Tensor, Tensor]] = []
    system.denoiser.register_forward_pre_hook(lambda _, inputs: calls.append((inputs[0], inputs[1])))
    return calls


@pytest.mark.parametrize("objective", [reweighted(), PathWeightedCrossEntropy(Constant())])
def test_training(objective: Objective, system: DiffusionSystem) -> None:
    """Step ``t`` where the token is not the clean one, 0 elsewhere."""
    system.objective, calls = objective, record(system)
    noised = system.copies(system.process, BATCH.target, seeded(1))
    system.loss(BATCH, seeded(1))
    ((x_t, steps),) = calls
    assert torch.equal(x_t, noised.x_t)
    assert torch.equal(steps, torch.where(noised.x_t == noised.x0, 0, noised.t[:, None]))
    assert (steps > 0).any(), "nothing is noise, so nothing is tested"


def test_second_pass_on_own_predictions(system: DiffusionSystem) -> None:
    """What was noise in the first pass keeps its step, whether or not the prediction is right."""
    system.objective, calls = OwnPredictions(Constant()), record(system)
    system.loss(BATCH, seeded(1))
    (first, first_steps), (second, second_steps) = calls
    assert torch.equal(first_steps, second_steps)
    assert torch.equal(first[first_steps == 0], second[second_steps == 0])


def test_glancing(system: DiffusionSystem) -> None:
    system.objective, calls = Glancing(Constant()), record(system)
    system.loss(BATCH, seeded(1))
    x0, learnable = BATCH.target.repeat_interleave(2, 0), system.process.learnable(BATCH.target).repeat_interleave(2, 0)
    for x_t, steps in calls:
        assert torch.equal(steps > 0, x_t != x0)
        assert not steps[~learnable].any()
    assert (calls[0][0] != x0)[learnable].double().mean() > 0.8, "the first pass reads noise"


@pytest.mark.parametrize("objective", [Smart(UniformMasks()), MaskAndCorrect()])
def test_correction(objective: Objective) -> None:
    """The passes with a loss read steps as decoding does: 0 where a token is not a mask."""
    system = tiny_system(VOCAB, "rdm_absorbing")
    system.process.token_steps = True
    system.objective, calls = objective, record(system)
    system.loss(BATCH, seeded(1))
    assert len(calls) >= 2
    for x_t, steps in calls:
        assert torch.equal(steps > 0, x_t == VOCAB.mask)


@pytest.mark.parametrize("options", [{}, {"block": 2}], ids=["whole", "blocks"])
@pytest.mark.parametrize("router", [Commit(), Unconditional()])
def test_decoding(router: Commit | Unconditional, options: dict[str, int], system: DiffusionSystem) -> None:
    """0 at tokens that are denoised or given when the network is called, the step of the row at all others."""
    calls, states = record(system), []

    def observe(state: State, outcome: Outcome) -> None:
        states.append(state)

    sampler = Sampler("test", 3, router, Linear(), length_candidates=1, **options)
    system.generate(BATCH.source, sampler, seeded(0), observe)
    compared = 0
    for state in states:
        noise = state.free & ~state.denoised
        steps = (sampler.reverse_process if options else router).network_steps(state)
        expected = torch.where(noise, steps[:, None], 0)
        matching = [found for tokens, found in calls if torch.equal(tokens, state.tokens)]
        if state.active.any(1).all():
            assert any(torch.equal(found, expected) for found in matching)
            compared += 1
    assert compared >= 2
    assert isinstance(sampler.reverse_process, Blocks) == bool(options)


@torch.no_grad()
def test_equal_steps_are_the_step_of_the_row(system: DiffusionSystem) -> None:
    memory, x_t = system.denoiser.encode(BATCH.source), BATCH.target
    t = torch.tensor([3, STEPS])
    by_row = system.denoiser(x_t, t, memory)
    torch.testing.assert_close(system.denoiser(x_t, t[:, None].expand_as(x_t), memory), by_row)
    one_denoised = t[:, None].expand_as(x_t).clone()
    one_denoised[0, 2] = 0
    changed = system.denoiser(x_t, one_denoised, memory)
    assert not torch.allclose(changed[0], by_row[0], atol=1e-3)
    torch.testing.assert_close(changed[1], by_row[1])


def test_the_posterior_step_is_refused(system: DiffusionSystem) -> None:
    """It keeps no record of which tokens are noise."""
    with pytest.raises(UserError, match="the posterior step does not know which tokens are noise"):
        system.check(Sampler("test", 3, PosteriorStep(), Linear(), length_candidates=1))


def test_likelihood(system: DiffusionSystem) -> None:
    calls = record(system)
    system.eval().likelihood(BATCH, draws=8, generator=seeded(0))
    both = [(x_t, steps) for x_t, steps in calls if len(x_t) == len(BATCH.target)]  # rows without noise are left out
    assert len(both) >= 2
    for x_t, steps in both:
        assert torch.equal(steps > 0, x_t != BATCH.target)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["diffusion=rdm_multinomial", "diffusion/time=none"], "token_steps has no effect without a time embedding"),
        (["diffusion=cmlm"], "token_steps has no effect without a time embedding"),
        (["diffusion=multinomial"], "the vanilla bound is that of a network that does not know the noise"),
    ],
)
def test_refused_by_the_script(options: list[str], message: str, tmp_path: Path) -> None:
    options = [*options, "diffusion.process.token_steps=true", f"hydra.run.dir={tmp_path / 'run'}"]
    assert message in script("train.py", *options, code=2).stderr


def test_trained_and_evaluated_by_the_scripts(tmp_path: Path) -> None:
    """The option is part of the run: evaluate.py decodes with it."""
    run = tmp_path / "run"
    short = ["trainer.max_steps=4", "trainer.val_check_interval=4", "callbacks.sampling.sentences=2"]
    script(
        "train.py", "diffusion=rdm_multinomial", "diffusion.process.token_steps=true", *short, f"hydra.run.dir={run}"
    )
    done = script("evaluate.py", f"ckpt={run}", "limit=4", "decoding.steps=2")
    assert "sacrebleu" in done.stdout.lower()
