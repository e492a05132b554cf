"""The denoiser of open-ended text: visibility, steps, positions, barred ids."""

import pytest
import torch
from torch import Tensor

from rdm.models.denoiser import OpenEndedDenoiser
from rdm.vocab import Vocab
from tests.language_models import tiny_llama_denoiser

VOCAB = Vocab(size=40)


@pytest.fixture
def denoiser() -> OpenEndedDenoiser:
    return tiny_llama_denoiser(VOCAB).eval()


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(5, VOCAB.size, (rows, length), generator=torch.Generator().manual_seed(rows * 100 + length))


def test_every_position_sees_all_others(denoiser: OpenEndedDenoiser) -> None:
    x, t = tokens(1, 9), torch.tensor([3])
    before = denoiser(x, t)
    for position in range(9):
        y = x.clone()
        y[0, position] = 5 + (x[0, position] - 4) % 30
        assert ((denoiser(y, t) - before).abs().amax(-1) > 1e-4).all()


def test_order_and_step_change_the_logits(denoiser: OpenEndedDenoiser) -> None:
    x, t = tokens(1, 7), torch.tensor([3])
    before = denoiser(x, t)
    y = x[:, [1, 0, 2, 3, 4, 5, 6]]
    assert ((denoiser(y, t) - before).abs().amax(-1) > 1e-4)[:, 2:].all()
    assert ((denoiser(x, t + 10) - before).abs().amax(-1) > 1e-4).all()


def test_steps_are_set_per_row(denoiser: OpenEndedDenoiser) -> None:
    x, t = tokens(3, 6), torch.tensor([1, 5, 90])
    alone = torch.cat([denoiser(x[i : i + 1], t[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(denoiser(x, t), alone, rtol=1e-4, atol=1e-5)


def test_positions_select_from_all_logits(denoiser: OpenEndedDenoiser) -> None:
    x, t = tokens(4, 6), torch.arange(1, 5)
    whole, chosen = denoiser(x, t, None), x % 3 == 0
    assert whole.shape == (4, 6, 40)
    torch.testing.assert_close(denoiser(x, t, None, chosen), whole[chosen])


def test_barred_ids_have_no_mass(denoiser: OpenEndedDenoiser) -> None:
    allowed = VOCAB.select(without=VOCAB.specials)
    denoiser.restrict(allowed)
    probs = denoiser(tokens(2, 5), torch.tensor([1, 2])).softmax(-1)
    assert (probs[..., ~allowed] == 0).all()
    assert (probs[..., allowed] > 0).all()
