"""Label smoothing: integers, and equal defaults for the two language models."""

import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor

from rdm.diffusion.objective import ReweightedCrossEntropy
from rdm.diffusion.reweighting import Linear
from rdm.errors import UserError
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.systems.base import System
from rdm.vocab import Vocab
from tests.builders import batch_from, tiny_autoregressive, tiny_system
from tests.configs import choices, config
from tests.language_models import tiny_ar_lm, window_batch

VOCAB = Vocab(size=12)
BATCH = batch_from(VOCAB, [([5, 6], [5, 6, 7]), ([7], [8])])
WINDOWS = window_batch(torch.randint(3, 12, (4, 7), generator=torch.Generator().manual_seed(0)))


def diffusion(smoothing: float) -> System:
    return tiny_system(VOCAB, objective=ReweightedCrossEntropy(Linear(), smoothing))


def autoregressive(smoothing: float) -> System:
    return AutoregressiveSystem(VOCAB, tiny_autoregressive(VOCAB).decoder, smoothing)


def ar_lm(smoothing: float) -> System:
    return tiny_ar_lm(VOCAB, smoothing)


@pytest.mark.parametrize("build", [diffusion, autoregressive, ar_lm])
def test_zero_may_be_an_integer(build) -> None:  # type: ignore[no-untyped-def]
    """As typed on the command line: loss and gradient are those of 0.0."""
    results: list[list[Tensor]] = []
    for smoothing in (0, 0.0):
        torch.manual_seed(0)
        system = build(smoothing)
        term = system.loss(WINDOWS if system.open_ended else BATCH, torch.Generator().manual_seed(1))[0]
        term.total.backward()
        gradients = [each.grad for each in system.parameters() if each.grad is not None]
        results.append([term.total.detach(), *gradients])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_loss_of_the_autoregressive_language_model_by_hand() -> None:
    """0.9 on the token, 0.1 spread over the predictable ids; the likelihood is not smoothed."""
    plain, smooth = tiny_ar_lm(VOCAB), tiny_ar_lm(VOCAB, 0.1)
    tokens = WINDOWS.target
    states: list[Tensor] = []
    plain.network.norm.register_forward_hook(lambda _, inputs, output: states.append(output))
    (nll,) = plain.loss(WINDOWS)
    log_probs = plain.network.to_vocabulary(states[0]).log_softmax(-1)
    predictable = [VOCAB.eos, VOCAB.unk, *range(5, 12)]
    expected = -(0.9 * log_probs.gather(2, tokens[..., None]).sum() + 0.1 * log_probs[..., predictable].mean(-1).sum())
    (term,) = smooth.loss(WINDOWS)
    torch.testing.assert_close(term.total, expected)
    assert not torch.isclose(term.total, nll.total)
    assert torch.equal(smooth.likelihood(WINDOWS).nats, plain.likelihood(WINDOWS).nats)
    with pytest.raises(UserError, match=r"label_smoothing must lie in \[0, 1\), got 1"):
        tiny_ar_lm(VOCAB, 1)


@pytest.mark.parametrize("name", choices("diffusion"))
def test_language_models_do_not_smooth_by_default(name: str) -> None:
    """Neither ``system=lm`` with any diffusion nor ``system=ar_lm``, so that they are comparable."""
    objective = instantiate(config("system=lm", f"diffusion={name}").diffusion.objective)
    assert getattr(objective, "label_smoothing", 0.0) == 0.0
    assert instantiate(config("system=ar_lm").system).label_smoothing == 0.0


def test_defaults_and_overrides() -> None:
    assert config().diffusion.objective.label_smoothing == 0.1
    assert config("diffusion.objective.label_smoothing=0").diffusion.objective.label_smoothing == 0
    lm = config("system=lm", "diffusion.objective.label_smoothing=0.2")
    assert lm.diffusion.objective.label_smoothing == 0.2
