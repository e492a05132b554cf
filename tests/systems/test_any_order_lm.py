"""The causal denoiser of open-ended text: from left to right the autoregressive model; bound, decoding."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rdm.decoding.routing import Commit, Unconditional
from rdm.decoding.schedule import Linear
from rdm.decoding.scores import LeftToRight
from rdm.diffusion.orders import BlockOrder, DenoisingOrder, LeftToRightOrder, UniformOrder
from rdm.errors import UserError
from rdm.systems.any_order_lm import AnyOrderLanguageModel
from rdm.systems.continuation import truncate
from rdm.training.initialization import take_weights
from rdm.vocab import Vocab
from tests.builders import overfit
from tests.decoding.helpers import seeded
from tests.language_models import one_canvas, packed, tiny_any_order_lm, tiny_ar_lm, window_batch

VOCAB = Vocab(size=12)
TEXT = torch.tensor([[5, 6, VOCAB.eos, 7, 8, 9], [9, 5, 5, VOCAB.eos, 10, 11]])


@pytest.fixture
def system() -> AnyOrderLanguageModel:
    system = tiny_any_order_lm(VOCAB, max_length=6)
    torch.nn.init.normal_(system.denoiser.distance.table, std=0.3)  # 0 at first, which would hide distances
    return system


def nats(system: AnyOrderLanguageModel, order: tuple[int, ...], prefix: int = 0) -> Tensor:
    """The cross-entropy ``[2, 6 - prefix]`` of ``TEXT``, read in ``order`` after the prefix, as in training."""
    text = system.denoiser.from_start(TEXT)
    whole = torch.tensor([[0, *range(1, prefix + 1), *(n + 1 for n in order)]]).expand(2, -1)
    places = torch.zeros(2, 7, dtype=torch.bool)
    places[:, prefix:-1] = True
    logits = system.denoiser.in_order(text, whole, None, places)
    gold = text.gather(1, whole)[:, prefix + 1 :]
    return functional.cross_entropy(logits, gold.flatten(), reduction="none").view(2, -1)


@pytest.mark.parametrize("prefix", [0, 2])
def test_from_left_to_right_it_is_the_autoregressive_model(prefix: int, system: AnyOrderLanguageModel) -> None:
    """The same network, started from the weights of ``ar_lm``, gives the same loss and the same likelihood."""
    causal = tiny_ar_lm(VOCAB, max_length=6)
    system.order = LeftToRightOrder(spread=1)
    taken = take_weights(system, causal.state_dict(), "ar_lm")
    assert [name for name in taken.missing if "network" in name] == []
    batch = window_batch(TEXT, prefix)
    (theirs,), (ours,) = causal.loss(batch), system.loss(batch)
    torch.testing.assert_close(ours.total, theirs.total)
    exact, bound = causal.likelihood(batch), system.likelihood(batch, draws=1)
    torch.testing.assert_close(bound.nats, exact.nats, rtol=1e-5, atol=1e-5)
    assert bound.tokens.tolist() == exact.tokens.tolist() == [6 - prefix] * 2


def test_a_masked_token_is_predicted_as_in_training(system: AnyOrderLanguageModel) -> None:
    """From the visible tokens, read from left to right, for every set of them."""
    for size in range(6):
        for visible in itertools.combinations(range(6), size):
            hidden = [n for n in range(6) if n not in visible]
            x_t = TEXT.clone()
            x_t[:, hidden] = VOCAB.mask
            logits = system.denoiser(x_t, torch.ones(2), None, x_t == VOCAB.mask)
            losses = functional.cross_entropy(logits, TEXT[:, hidden].flatten(), reduction="none").view(2, -1)
            for place, n in enumerate(hidden):
                order = (*visible, n, *(m for m in hidden if m != n))
                torch.testing.assert_close(losses[:, place], nats(system, order)[:, size], atol=1e-5, rtol=1e-4)


def test_positions_may_be_a_mask_or_indices(system: AnyOrderLanguageModel) -> None:
    x_t = TEXT.clone()
    x_t[0, 3] = x_t[1, 0] = x_t[1, 4] = VOCAB.mask
    masked = x_t == VOCAB.mask
    by_mask, by_index = (
        system.denoiser(x_t, torch.ones(2), None, where) for where in (masked, masked.nonzero(as_tuple=True))
    )
    assert by_mask.shape == (3, VOCAB.size)
    torch.testing.assert_close(by_index, by_mask)


@pytest.mark.parametrize(
    ("order", "possible"),
    [(UniformOrder(), list(itertools.permutations((3, 4, 5)))), (BlockOrder(calls=2), [(3, 4, 5), (4, 3, 5)])],
    ids=["uniform", "blocks of two and one tokens"],
)
def test_the_bound_is_the_mean_over_orders(
    order: DenoisingOrder, possible: list[tuple[int, ...]], system: AnyOrderLanguageModel
) -> None:
    """Of the three tokens after the prefix, within four standard errors."""
    system.order = order
    each = torch.stack([nats(system, one, prefix=3).sum(1) for one in possible])
    likelihood = system.likelihood(window_batch(TEXT, prefix=3), draws=800, generator=seeded(0))
    assert likelihood.kind == "bound"
    error = each.std(0, correction=0) / 800**0.5
    assert error.min() > 1e-3, "orders differ, or their mean would not be tested"
    assert ((likelihood.nats - each.mean(0)).abs() < 4 * error).all()


def test_probabilities_of_every_order_sum_to_one(system: AnyOrderLanguageModel) -> None:
    """Over all texts of two tokens, read from left to right and from right to left: no token sees itself."""
    writable = (system.denoiser.network.output_bias == 0).nonzero().flatten()
    texts = torch.cartesian_prod(writable, writable)
    padded = system.denoiser.from_start(texts)
    for order in ([0, 1, 2], [0, 2, 1]):
        whole = torch.tensor([order]).expand(len(texts), -1)
        places = torch.tensor([[True, True, False]]).expand(len(texts), -1)
        logits = system.denoiser.in_order(padded, whole, None, places)
        gold = padded.gather(1, whole)[:, 1:]
        log_probs = -functional.cross_entropy(logits.double(), gold.flatten(), reduction="none").view(-1, 2).sum(1)
        assert log_probs.exp().sum().item() == pytest.approx(1.0, abs=1e-5)


def test_decoding(system: AnyOrderLanguageModel) -> None:
    """The prompt stays, rows do not depend on each other, and a template keeps its tokens."""
    commit = one_canvas(Commit(), steps=3)
    together = system.generate(TEXT[:, :2], commit).tokens
    for row in range(2):
        assert torch.equal(system.generate(TEXT[row : row + 1, :2], commit).tokens[0], together[row])
    template = TEXT.clone()
    template[0, [1, 4]] = template[1, 2] = VOCAB.mask
    filled = system.generate(TEXT[:, :0], commit, template=template).tokens
    assert torch.equal(filled[template != VOCAB.mask], TEXT[template != VOCAB.mask])
    with pytest.raises(UserError, match="predicts masked tokens only"):
        system.check(one_canvas(Unconditional()))


def test_overfits_packed_text() -> None:
    """Every block order of a text is learned, and the decoder that visits these blocks writes the text."""
    vocab, windows = packed(8, 16)
    torch.manual_seed(1)
    system = tiny_any_order_lm(vocab, order=BlockOrder(calls=8), dim=64)
    overfit(system, window_batch(windows), steps=250, lr=4e-3)
    decoding = one_canvas(Commit(score=LeftToRight()), steps=6)
    decoding.schedule = Linear()
    written = system.generate(windows[:, :4], decoding).tokens
    assert (written == truncate(windows[:, 4:], vocab, 12)).double().mean() > 0.9
