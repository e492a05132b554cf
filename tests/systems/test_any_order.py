"""The causal denoiser of any order: what a prediction sees, orders, loss and bound, decoding, refusals."""

import itertools
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor
from torch.nn import functional

from rdm.data.batch import Batch
from rdm.decoding.routing import Commit
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear as LinearDecoding
from rdm.decoding.transition import Outcome, State
from rdm.diffusion.noise import Absorbing, Uniform
from rdm.diffusion.orders import BlockOrder, LeftToRightOrder, RandomBlockOrder, UniformOrder
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.schedule import Linear
from rdm.errors import UserError
from rdm.models.causal import CausalDecoder
from rdm.systems.any_order import AnyOrderSystem
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, tiny_any_order
from tests.decoding.helpers import p_value, seeded
from tests.decoding.test_choices import CHOICES, decoding

VOCAB = Vocab(size=12)
PAD, MASK, BOS, EOS = VOCAB.pad, VOCAB.mask, VOCAB.bos, VOCAB.eos
TARGET = torch.tensor([[BOS, 5, 6, 7, 8, EOS, PAD], [BOS, 9, 5, EOS, PAD, PAD, PAD]])
SOURCE = torch.tensor([[BOS, 5, 6, EOS], [BOS, 7, EOS, PAD]])


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def system(request: pytest.FixtureRequest) -> AnyOrderSystem:
    torch.manual_seed(0)
    system = tiny_any_order(VOCAB, layers=3, pre_norm=request.param).eval()
    for name, parameter in system.denoiser.named_parameters():
        if name.endswith(".table"):  # 0 at first, which would hide positions
            torch.nn.init.normal_(parameter, std=0.3)
    return system


def predictions(system: AnyOrderSystem, x_t: Tensor) -> Tensor:
    """Logits ``[R, N, V]``, 0 where nothing is masked."""
    masked = x_t == MASK
    logits = system.denoiser(x_t, torch.ones(len(x_t)), system.denoiser.encode(SOURCE), masked)
    assert isinstance(logits, Tensor)
    return torch.zeros(*x_t.shape, VOCAB.size).masked_scatter(masked[..., None], logits)


def test_a_masked_token_is_predicted_as_in_training(system: AnyOrderSystem) -> None:
    """From <bos> and the visible tokens from left to right, for every set of visible tokens."""
    memory, row = system.denoiser.encode(SOURCE), TARGET[:1]
    for size in range(4):
        for visible in itertools.combinations(range(1, 5), size):
            hidden = [n for n in range(1, 5) if n not in visible]
            x_t = TARGET.clone()
            x_t[0, hidden] = MASK
            decoded = predictions(system, x_t)[0]
            for n in hidden:
                order = torch.tensor([[0, *visible, n, *(m for m in hidden if m != n), 5, 6]])
                place = (torch.tensor([0]), torch.tensor([size]))
                trained = system.denoiser.in_order(row, order, memory.select(torch.tensor([0])), place)
                torch.testing.assert_close(decoded[n], trained[0], atol=1e-5, rtol=1e-4)


def test_a_visible_token_is_predicted_from_those_before_it(system: AnyOrderSystem) -> None:
    """Also if masks are between them; <bos> is given."""
    memory = system.denoiser.encode(SOURCE)
    x_t = TARGET.clone()
    x_t[0, 2] = MASK
    visible = torch.tensor([[False, True, False, True, True, False, False], [False, True, True, *[False] * 4]])
    logits = system.denoiser(x_t, torch.ones(2), memory, visible)
    assert isinstance(logits, Tensor)
    order = torch.tensor([[0, 1, 3, 4, 2, 5, 6], [0, 1, 2, 3, 4, 5, 6]])
    places = (torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 1]))
    expected = system.denoiser.in_order(TARGET, order, memory, places)
    assert isinstance(expected, Tensor)
    ordinary = VOCAB.select(without=(EOS,))
    torch.testing.assert_close(logits[:, ordinary], expected[:, ordinary])


def test_tokens_predicted_ahead(system: AnyOrderSystem) -> None:
    """Also tokens that do not come next are predicted as in decoding, beside those that come next."""
    memory = system.denoiser.encode(SOURCE)
    order = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]])
    rows, i, j = torch.tensor([[0, 0, 1], [0, 1, 0], [2, 4, 2]])
    places = (torch.tensor([0, 1]), torch.tensor([1, 0]))
    logits = system.denoiser.in_order(TARGET, order, memory, places, ahead=(rows, i, j))
    assert isinstance(logits, Tensor)
    torch.testing.assert_close(logits[:2], system.denoiser.in_order(TARGET, order, memory, places))
    for row, read, predicted, found in zip(rows, i, j, logits[2:], strict=True):
        x_t = TARGET.clone()
        x_t[row, read + 1 :] = torch.where(TARGET[row, read + 1 :] > EOS, MASK, TARGET[row, read + 1 :])
        torch.testing.assert_close(found, predictions(system, x_t)[row, predicted], atol=1e-5, rtol=1e-4)


def test_starts_as_the_autoregressive_network(system: AnyOrderSystem) -> None:
    """With the vectors that it lacks at 0, the next token is predicted as by the causal decoder."""
    for name, parameter in system.denoiser.named_parameters():
        if name.startswith(("from_end", "distance")):
            torch.nn.init.zeros_(parameter)
    causal = CausalDecoder(system.denoiser.network)
    expected = causal(TARGET, causal.encode(SOURCE))
    assert isinstance(expected, Tensor)
    for visible in range(4):
        x_t = TARGET[:1].clone()
        x_t[0, visible + 1 : 5] = MASK
        found = system.denoiser(x_t, torch.ones(1), system.denoiser.encode(SOURCE[:1]), x_t == MASK)
        torch.testing.assert_close(found[0], expected[0, visible], atol=1e-5, rtol=1e-4)


class Pairs(RandomBlockOrder):
    """Blocks of two tokens."""

    def __call__(self, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return (free.cumsum(1) - 1) // 2


def test_loss_of_tokens_at_the_same_time() -> None:
    """Each token after all before it, and those that are not the first of their block after the blocks before."""
    torch.manual_seed(0)
    system = tiny_any_order(VOCAB, order=Pairs(largest=2, ahead_factor=0.5)).eval()
    denoiser = system.denoiser
    for parameter in (denoiser.from_end.table, denoiser.next_from_start.table, denoiser.next_from_end.table):
        torch.nn.init.normal_(parameter, std=0.3)
    system.label_smoothing = 0.0
    batch = batch_from(VOCAB, [([5, 6], [7, 8, 9, 10]), ([6], [11])])
    seen = [([], 0), ([7], 1), ([7, 8], 2), ([7, 8, 9], 3), ([], 1), ([7, 8], 3)]  # of the first text
    text, total = [7, 8, 9, 10], 0.0
    for given, predicted in seen:
        x_t = torch.tensor([[BOS, *given, *[MASK] * (4 - len(given)), EOS]])
        logits = system.denoiser(x_t, torch.ones(1), system.denoiser.encode(batch.source[:1]), x_t == MASK)
        total -= logits[predicted - len(given)].log_softmax(-1)[text[predicted]].item()
    x_t = torch.tensor([[BOS, MASK, EOS]])
    logits = system.denoiser(x_t, torch.ones(1), system.denoiser.encode(torch.tensor([[BOS, 6, EOS]])), x_t == MASK)
    total -= logits[0].log_softmax(-1)[11].item()
    diffusion, ahead, length = system.loss(batch)
    assert (diffusion.factor, ahead.factor) == (1.0, 0.5)
    assert diffusion.total.item() + ahead.total.item() == pytest.approx(total, rel=1e-4)
    likelihood = system.likelihood(batch)
    assert likelihood.kind == "exact"
    expected = diffusion.total.item() + length.total.item()
    assert likelihood.nats.sum().item() == pytest.approx(expected, rel=1e-4)
    assert diffusion.total.item() == pytest.approx(sum_of_next(system, batch), rel=1e-4)


def sum_of_next(system: AnyOrderSystem, batch: Batch) -> float:
    """The loss of an order from left to right."""
    system.order = LeftToRightOrder(spread=1)
    return system.loss(batch)[0].total.item()


def test_rows_of_unknown_length() -> None:
    """They are learned as by the autoregressive system with the same network; no text has <eos> in it."""
    torch.manual_seed(0)
    system = tiny_any_order(VOCAB, order=Pairs(largest=2, ahead_factor=0.5), unknown_length=0.5).eval()
    batch = batch_from(VOCAB, [([5, 6], [7, 8, 9, 10]), ([6], [11]), ([7, 8], [5, 6, 5]), ([9], [9, 8])])
    causal = AutoregressiveSystem(VOCAB, CausalDecoder(deepcopy(system.denoiser.network)), system.label_smoothing)
    causal.decoder.restrict(system.denoiser.network.output_bias == 0)
    memory = system.denoiser.encode(batch.source)
    exact = causal.likelihood(batch)
    rescoring = system.rescoring_likelihood(batch)
    assert rescoring is not None
    torch.testing.assert_close(rescoring.nats, exact.nats)
    assert torch.equal(rescoring.tokens, exact.tokens)
    terms = {term.name: term.total for term in system.loss(batch, seeded(5))}
    known = torch.rand(4, generator=seeded(5)) >= 0.5
    assert 0 < known.sum() < 4
    rows = {True: known, False: ~known}
    half = {key: replace(batch, source=batch.source[each], target=batch.target[each]) for key, each in rows.items()}
    causal.predictable, causal.label_smoothing = system.denoiser.network.output_bias == 0, system.label_smoothing
    torch.testing.assert_close(terms["unknown_length"], causal.loss(half[False])[0].total)
    system.unknown_length = 0.0
    separate = {term.name: term.total for term in system.loss(half[True])}
    torch.testing.assert_close(terms["diffusion"], separate["diffusion"])
    torch.testing.assert_close(terms["ahead"], separate["ahead"])
    free = torch.full_like(batch.target, MASK)
    logits = system.denoiser(free, torch.ones(4), memory)
    assert isinstance(logits, Tensor)
    assert (logits.softmax(-1)[..., EOS] == 0).all()


def test_losses_are_summed_in_float32_under_autocast() -> None:
    system = tiny_any_order(VOCAB, order=Pairs(largest=2, ahead_factor=0.5), unknown_length=0.5)
    batch = batch_from(VOCAB, [([5, 6], [7, 8, 9, 10]), ([6], [11])])
    with torch.autocast("cpu", torch.bfloat16):
        terms = system.loss(batch, seeded(0))
    assert {term.name: term.total.dtype for term in terms} == dict.fromkeys(
        ("diffusion", "unknown_length", "ahead", "length"), torch.float32
    )


def test_what_a_prediction_depends_on(system: AnyOrderSystem) -> None:
    """On each visible token of its row, on nothing of another row, not on the width of the batch."""
    x_t = TARGET.clone()
    x_t[0, [2, 4]] = MASK
    x_t[1, 1] = MASK
    before = predictions(system, x_t)
    for column in (1, 3):
        changed = x_t.clone()
        changed[0, column] = 11
        difference = (predictions(system, changed) - before).abs().amax(-1)
        assert (difference[0, [2, 4]] > 1e-4).all()
        assert difference[1].max() < 1e-6
    wider = torch.nn.functional.pad(x_t, (0, 2), value=PAD)
    torch.testing.assert_close(predictions(system, wider)[:, :7], before, atol=1e-5, rtol=1e-4)


def test_orders() -> None:
    """Uniform orders are equally likely; from left to right, tokens `spread` positions apart are never exchanged."""
    free = torch.ones(6_000, 3, dtype=torch.bool)
    drawn = map(tuple, UniformOrder()(free, seeded(0)).argsort(1).tolist())
    number = {order: index for index, order in enumerate(itertools.permutations(range(3)))}
    assert p_value(torch.tensor([number[order] for order in drawn]), np.full(6, 1 / 6)) > 0.001
    keys = LeftToRightOrder(spread=3)(torch.ones(500, 10, dtype=torch.bool), seeded(0))
    assert all((keys[:, n + 3 :] > keys[:, n, None]).all() for n in range(7))
    assert (keys[:, 1:] < keys[:, :-1]).any(), "neighbours are exchanged"


@pytest.mark.parametrize("calls", [1, 3, 10])
def test_block_orders_are_what_the_decoder_visits(calls: int) -> None:
    """Sorted by the order, the tokens of each decoding iteration are those of its block, for every length."""
    free = torch.zeros(12, 14, dtype=torch.bool)
    for row in range(12):
        free[row, 1 : row + 2] = True  # 1 to 12 tokens between <bos> and <eos>
    lengths = free.sum(1)
    keys = BlockOrder(calls)(free, seeded(0)).masked_fill(~free, float("inf"))
    before = torch.zeros_like(lengths)
    for iteration in range(1, calls + 1):
        denoised = LinearDecoding().denoised(iteration, calls, lengths)
        for row in range(12):
            visited = sorted(keys[row].argsort()[before[row] : denoised[row]].tolist())
            assert visited == list(range(1 + int(before[row]), 1 + int(denoised[row])))
        before = denoised
    two = BlockOrder(1)(torch.ones(500, 2, dtype=torch.bool), seeded(0))
    assert 0.4 < (two[:, 0] < two[:, 1]).double().mean() < 0.6, "any order within a block"


def test_random_blocks() -> None:
    """Sizes are uniform in 1 .. largest; given tokens count for nothing."""
    free = torch.ones(3_000, 9, dtype=torch.bool)
    free[:, 0] = False
    blocks = RandomBlockOrder(largest=3, ahead_factor=1.0)(free, seeded(0))[:, 1:]
    assert (blocks[:, 0] == 0).all()
    assert ((blocks.diff(dim=1) == 0) | (blocks.diff(dim=1) == 1)).all()
    for number in (0, 1):
        assert p_value((blocks == number).sum(1) - 1, np.full(3, 1 / 3)) > 0.001


def test_given_tokens_come_first_and_padding_last(system: AnyOrderSystem) -> None:
    unknown = TARGET.clone()
    unknown[0, 3] = VOCAB.unk
    free = system.process.learnable(unknown)
    order, key = system.draw_order(unknown, free, seeded(0))
    places = system.places(order, free)
    given = 1 + int(not free[0, 3])
    assert order[0, :given].tolist() == ([0, 3] if given == 2 else [0])
    assert order[0, 5:].tolist() == [5, 6]
    assert torch.equal(key.isfinite().sum(1), (unknown != PAD).sum(1) - 1)
    assert places.sum().item() == free.sum().item()
    assert all(free[row, order[row, place + 1]] for row, place in places.nonzero().tolist())


def test_loss_and_bound(system: AnyOrderSystem) -> None:
    """The loss is the cross-entropy along one order; the bound is its mean over all orders, and the length."""
    batch = batch_from(VOCAB, [([5, 6], [7, 8, 9])])
    memory, nats = system.denoiser.encode(batch.source), []
    for rest in itertools.permutations((1, 2, 3)):
        order = torch.tensor([[0, *rest, 4]])
        places = (torch.zeros(3, dtype=torch.long), torch.tensor([0, 1, 2]))
        logits = system.denoiser.in_order(batch.target, order, memory, places)
        assert isinstance(logits, Tensor)
        nats.append(functional.cross_entropy(logits, batch.target[0, list(rest)], reduction="sum").item())
    length = functional.cross_entropy(system.denoiser.length_logits(memory), torch.tensor([3])).item()
    likelihood = system.likelihood(batch, draws=600, generator=seeded(0))
    assert likelihood.kind == "bound"
    assert likelihood.tokens.tolist() == [4]
    assert likelihood.nats.item() == pytest.approx(sum(nats) / 6 + length, abs=0.1)
    system.label_smoothing = 0.0
    diffusion, length_term = system.loss(batch, seeded(0))
    assert min(abs(diffusion.total.item() - each) for each in nats) < 1e-4
    assert length_term.total.item() == pytest.approx(length, rel=1e-5)


def test_decoding(system: AnyOrderSystem) -> None:
    """Each source decoded alone gives the same text; a template keeps its tokens."""
    commit = Sampler("rdm_commit", 3, Commit(), LinearDecoding(), length_candidates=2)
    together = system.generate(SOURCE, commit)
    for row in range(2):
        width = int((SOURCE[row] != PAD).sum())
        alone = system.generate(SOURCE[row : row + 1, :width], commit)
        first, second = (tokens[tokens != PAD].tolist() for tokens in (alone.tokens[0], together.tokens[row]))
        assert first == second
    template = TARGET.clone()
    template[0, [1, 4]] = template[1, 2] = MASK
    filled = system.generate(SOURCE, commit, template=template).tokens
    assert torch.equal(filled[template != MASK], template[template != MASK])
    assert VOCAB.is_ordinary(filled[template == MASK]).all()


@pytest.mark.parametrize("name", CHOICES)
def test_a_decoding_that_predicts_denoised_tokens_again_is_refused(name: str, system: AnyOrderSystem) -> None:
    sampler = instantiate(decoding(f"decoding={name}"))
    asked_again = []

    def observe(state: State, outcome: Outcome) -> None:
        asked_again.append(bool((state.active & state.denoised).any()))

    try:
        system.check(sampler)
    except UserError as refused:
        message = str(refused)
    else:
        message = ""
        system.generate(SOURCE, sampler, seeded(0), observe)
    reasons = ("", "predicts masked tokens only", "needs noise that looks like text", "exceeds diffusion.num_steps")
    assert any(reason in message if reason else not message for reason in reasons)
    assert not any(asked_again) or sampler.transition.left_to_right


@pytest.mark.parametrize("noise", [Uniform(VOCAB), Absorbing(VOCAB)], ids=["uniform", "specials"])
def test_other_noise_is_refused(noise: Uniform | Absorbing) -> None:
    denoiser = tiny_any_order(VOCAB).denoiser
    with pytest.raises(UserError, match="needs masks as noise"):
        AnyOrderSystem(VOCAB, DiffusionProcess(Linear(4), noise), denoiser, UniformOrder())
