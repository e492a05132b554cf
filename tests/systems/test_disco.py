"""DisCo: visibility of tokens, draws of visible sets, likelihood, easy-first decoding."""

import itertools

import pytest
import torch
from torch import Tensor

from rdm.decoding.easy_first import EasyFirst, visible_before
from rdm.decoding.sampler import Canvas
from rdm.errors import UserError
from rdm.systems.disco import DisCoSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, sampler, tiny_disco
from tests.decoding.helpers import seeded

VOCAB = Vocab(size=12)
PAD, MASK, BOS, EOS = VOCAB.pad, VOCAB.mask, VOCAB.bos, VOCAB.eos
TARGET = torch.tensor([[BOS, 5, 6, 7, 8, EOS, PAD], [BOS, 9, 5, EOS, PAD, PAD, PAD]])
SOURCE = torch.tensor([[BOS, 5, 6, EOS], [BOS, 7, EOS, PAD]])


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def system(request: pytest.FixtureRequest) -> DisCoSystem:
    torch.manual_seed(0)
    return tiny_disco(VOCAB, layers=3, pre_norm=request.param).eval()


def test_a_position_sees_only_its_visible_set(system: DisCoSystem) -> None:
    """Its logits change with each visible token, and with no other: neither its own, nor through other positions."""
    memory, visible = system.denoiser.encode(SOURCE), system.draw_visible(TARGET, seeded(3))
    before = system.denoiser(TARGET, visible, memory)
    seen = 0
    for row, column in system.vocab.is_ordinary(TARGET).nonzero().tolist():
        changed = TARGET.clone()
        changed[row, column] = 11
        same = (system.denoiser(changed, visible, memory) - before).abs().amax(-1)[row] < 1e-6
        assert torch.equal(same, ~visible[row, :, column])
        seen += int(visible[row, :, column].sum())
    assert seen > 5


def test_visible_sets() -> None:
    """Never itself or padding, always <bos> and <eos>; every number of other tokens is equally likely."""
    system, target = tiny_disco(VOCAB), TARGET.repeat(500, 1)
    visible = system.draw_visible(target, seeded(1))
    assert not visible.diagonal(dim1=1, dim2=2)[VOCAB.is_ordinary(target)].any()
    assert not visible[(target == PAD)[:, None].expand_as(visible)].any()
    assert visible[((target == BOS) | (target == EOS))[:, None].expand_as(visible)].all()
    for start, length in ((0, 4), (1, 2)):
        others = visible[start::2, 1 : length + 1, 1 : length + 1].sum(-1).flatten()
        counts = others.bincount(minlength=length).float()
        assert len(counts) == length
        assert (counts / counts.sum() - 1 / length).abs().max() < 0.05


def test_one_pass_in_an_order_equals_one_pass_per_token(system: DisCoSystem) -> None:
    """With masks for everything that comes later; and the probabilities of all texts of one length sum to one."""
    batch = batch_from(VOCAB, [([5, 6], [7, 8, 9])])
    memory = system.denoiser.encode(batch.source)
    total = 0.0
    for column in (1, 2, 3):
        tokens = batch.target.clone()
        tokens[:, column:4] = MASK
        visible = ((tokens != MASK) & (tokens != PAD))[:, None].expand(1, 5, 5)
        logits = system.denoiser(tokens, visible, memory)[0, column]
        total -= float(logits.double().log_softmax(-1)[batch.target[0, column]].detach())
    length = -float(system.denoiser.length_logits(memory).double().log_softmax(-1)[0, 3].detach())
    likelihood = system.likelihood(batch)
    assert likelihood.nats.item() == pytest.approx(total + length, rel=1e-5)
    assert (likelihood.kind, likelihood.tokens.tolist()) == ("exact", [4])


def test_probabilities_of_all_texts_sum_to_one(system: DisCoSystem) -> None:
    texts = list(itertools.product(range(5, 12), repeat=2))
    batch = batch_from(VOCAB, [([5, 6], list(text)) for text in texts])
    memory = system.denoiser.encode(batch.source[:1])
    of_length = system.denoiser.length_logits(memory).double().softmax(-1)[0, 2]
    assert (-system.likelihood(batch).nats).exp().sum().item() == pytest.approx(of_length.item(), rel=1e-5)


def test_counts_and_loss(system: DisCoSystem) -> None:
    batch = batch_from(VOCAB, [([5, 6], [7, VOCAB.unk, 9]), ([5], [6])])
    assert {name: int(count) for name, count in system.counts(batch).items()} == {
        "sentences": 2, "tokens": 8, "ordinary": 3,
    }  # fmt: skip
    terms = system.loss(batch, seeded())
    assert [(term.name, term.unit, term.factor) for term in terms] == [
        ("cross_entropy", "ordinary", 1.0),
        ("length", "sentences", 0.01),
    ]
    sum(term.total for term in terms).backward()  # type: ignore[union-attr]
    unused = {name for name, parameter in system.named_parameters() if parameter.grad is None}
    assert unused == set()


def test_passes_of_easy_first() -> None:
    """The order is fixed after the first pass; later passes see the tokens ranked before, of the pass before."""
    seen: list[tuple[list[int], Tensor]] = []
    size = {1: 1.0, 2: 3.0, 3: 2.0}  # confidence of the three positions

    def predict(tokens: Tensor, visible: Tensor, active: Tensor) -> Tensor:
        seen.append((tokens[0].tolist(), visible[0]))
        logits = torch.zeros(3, VOCAB.size)
        for row, column in enumerate((1, 2, 3)):
            known = visible[0, column] & (tokens[0] > 4)
            logits[row, 5 + int(known.sum()) if len(seen) < 4 else 5] = size[column]
        return logits

    canvas = Canvas(torch.tensor([[BOS, MASK, MASK, MASK, EOS]]), torch.tensor([[True, False, False, False, True]]))
    decoded = EasyFirst("x", steps=3).run(predict, canvas, PAD)
    assert [tokens for tokens, _ in seen] == [
        [BOS, MASK, MASK, MASK, EOS],
        [BOS, 5, 5, 5, EOS],
        [BOS, 7, 5, 6, EOS],
    ]
    assert decoded.tokens.tolist() == [[BOS, 7, 5, 6, EOS]]  # unchanged: the end
    assert decoded.calls.tolist() == [3]
    given = torch.tensor([True, False, False, False, True])
    assert torch.equal(seen[0][1], given.expand(5, 5))
    for _, visible in seen[1:]:
        assert visible[1].tolist() == [True, False, True, True, True]
        assert visible[2].tolist() == [True, False, False, False, True]
        assert visible[3].tolist() == [True, False, True, False, True]


def test_finished_sources_are_not_decoded_further(system: DisCoSystem) -> None:
    """The output equals that of each source alone; a limit of one pass gives the first prediction."""
    decoding = EasyFirst("x", steps=8, length_candidates=3)
    together = system.generate(SOURCE, decoding)
    assert together.calls is not None
    assert 2 <= int(together.calls.min()) <= 8
    for row in range(2):
        alone = system.generate(SOURCE[row : row + 1], decoding)
        length = int((alone.tokens != PAD).sum())
        assert torch.equal(alone.tokens[0, :length], together.tokens[row, :length])
        torch.testing.assert_close(alone.scores[0], together.scores[row])
    assert system.generate(SOURCE, EasyFirst("x", steps=1)).calls.tolist() == [1, 1]  # type: ignore[union-attr]


def test_templates_keep_given_tokens(system: DisCoSystem) -> None:
    template = torch.tensor([[BOS, 9, MASK, 7, EOS]])
    filled = system.generate(SOURCE[:1], EasyFirst("x"), template=template).tokens
    assert filled[0, [0, 1, 3, 4]].tolist() == [BOS, 9, 7, EOS]
    assert int(filled[0, 2]) > 4


def test_visible_before() -> None:
    rank, free = torch.tensor([[2, 0, 1]]), torch.tensor([[True, True, False]])
    assert visible_before(rank, free)[0].int().tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 0]]


def test_other_decodings_raise(system: DisCoSystem) -> None:
    with pytest.raises(UserError, match="system=disco needs decoding=easy_first, not cmlm"):
        system.check(sampler("cmlm"))
    with pytest.raises(UserError, match="only 31 lengths"):
        system.check(EasyFirst("x", length_candidates=32))
    with pytest.raises(UserError, match=r"decoding.steps must be at least 1"):
        EasyFirst("x", steps=0)
