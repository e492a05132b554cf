"""The Levenshtein Transformer: losses by hand, draws, decoding, trace."""

import math

import pytest
import torch
from torch import Tensor

from rdm.decoding.levenshtein import Edit, LevenshteinDecoding
from rdm.decoding.trace import TokenState, row_steps
from rdm.errors import UserError
from rdm.page.page import render
from rdm.page.trajectory import Example, Trajectory
from rdm.systems.levenshtein import LevenshteinSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, overfit, sampler, tiny_levenshtein
from tests.decoding.helpers import seeded

VOCAB = Vocab(size=12)
PAD, MASK, BOS, EOS = VOCAB.pad, VOCAB.mask, VOCAB.bos, VOCAB.eos
SOURCE = torch.tensor([[BOS, 5, 6, EOS], [BOS, 7, EOS, PAD], [BOS, 8, 9, EOS]])


@pytest.fixture
def system() -> LevenshteinSystem:
    torch.manual_seed(0)
    return tiny_levenshtein(VOCAB).eval()


def test_losses_by_hand(system: LevenshteinSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one sentence of which the second and third token are deleted."""
    batch = batch_from(VOCAB, [([5, 6], [7, 8, 9, 7])])
    kept = torch.tensor([[True, True, False, False, True, True]])
    monkeypatch.setattr(system, "draw_kept", lambda *_: kept)
    terms = {term.name: term for term in system.loss(batch)}
    memory, editor = system.editor.encode(batch.source), system.editor
    start = torch.tensor([[BOS, 7, 7, EOS]])
    gaps = editor.insertion(editor(start, memory)).log_softmax(-1)[0].detach()
    insertion = 0.0
    for gap, count in enumerate([0, 2, 0]):
        insertion -= 0.99 * float(gaps[gap, count]) + 0.01 * float(gaps[gap].mean())
    masked = torch.tensor([[BOS, 7, MASK, MASK, 7, EOS]])
    words = editor.filling(editor(masked, memory)).log_softmax(-1)[0].detach()
    tokens = -sum(0.9 * float(words[n, gold]) + 0.1 * float(words[n, 5:].mean()) for n, gold in ((2, 8), (3, 9)))
    guess = masked.clone()
    guess[0, 2:4] = words[2:4].argmax(-1)
    wrong = [token != gold for token, gold in zip(guess[0, 2:4].tolist(), (8, 9), strict=True)]
    assert any(wrong)
    decisions = editor.deletion(editor(guess, memory)).log_softmax(-1)[0].detach()
    labels = [0, *map(int, wrong), 0]
    deletion = -sum(float(decisions[n, label]) for n, label in enumerate(labels, 1))
    expected = {"insertion": insertion, "tokens": tokens, "deletion": deletion}
    assert {name: term.total.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-4)
    assert [(term.unit, term.factor) for term in terms.values()] == [("tokens", 2.0), ("inner", 2.0), ("inner", 1.0)]


def test_no_gradient_through_the_filled_tokens_and_all_parameters_learn(system: LevenshteinSystem) -> None:
    batch = batch_from(VOCAB, [([5, 6], [7, VOCAB.unk, 9, 7]), ([5], [6])])
    counts = {name: int(count) for name, count in system.counts(batch).items()}
    assert counts == {"sentences": 2, "tokens": 9, "inner": 5}
    sum(term.total for term in system.loss(batch, seeded(2))).backward()  # type: ignore[union-attr]
    assert all(parameter.grad is not None for parameter in system.parameters())


def test_share_of_kept_tokens_is_uniform(system: LevenshteinSystem) -> None:
    gold = torch.full((4000, 12), 5)
    gold[:, 0], gold[:, -2], gold[:, -1] = BOS, EOS, PAD
    kept = system.draw_kept(gold, seeded())
    assert kept[:, 0].all()
    assert kept[:, -2].all()
    shares = kept[:, 1:-2].sum(1).bincount(minlength=10).float() / 4000  # 0 to 9 of 9 tokens, equally likely
    assert (shares - 0.1).abs().max() < 0.02


class Script:
    """An editor that follows a script: for each call a function of the tokens."""

    def __init__(self, deletions: list[list[int]], insertions: list[list[int]], words: list[list[int]]) -> None:
        self.deletions, self.insertions, self.words = iter(deletions), iter(insertions), iter(words)
        self.seen: list[list[int]] = []

    def deletion(self, tokens: Tensor, rows: Tensor) -> Tensor:
        self.seen.append(tokens[0].tolist())
        return torch.eye(2)[torch.tensor([next(self.deletions)])] * 3

    def insertion(self, tokens: Tensor, rows: Tensor) -> Tensor:
        return torch.eye(5)[torch.tensor([next(self.insertions)])] * 3

    def filling(self, tokens: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        return torch.eye(VOCAB.size)[torch.tensor(next(self.words))] * 3


class Pieces:
    """A tokenizer for display."""

    vocab = VOCAB

    def pieces(self, row: list[int]) -> list[str]:
        names = ["<pad>", "<mask>", "<bos>", "<eos>", "<unk>", *"abcdefg"]
        return [names[index] for index in row]


def test_rounds_and_trace() -> None:
    """Three rounds: insert ``a b``; delete ``a``, insert ``c`` and ``d``; nothing. ``<bos>`` cannot be deleted."""
    script = Script(
        deletions=[[1, 1, 0, 1], [0] * 5],
        insertions=[[2], [1, 1], [0] * 4],
        words=[[5, 6], [7, 8]],
    )
    decoding = LevenshteinDecoding("levenshtein", steps=9)
    trace = decoding.trace()
    decoded = decoding.run(script, torch.tensor([[BOS, EOS]]), 10, VOCAB, trace)
    assert decoded.tokens.tolist() == [[BOS, 7, 6, 8, EOS]]
    assert script.seen == [[BOS, 5, 6, EOS], [BOS, 7, 6, 8, EOS]]
    assert decoded.calls.tolist() == [2 + 3 + 2]
    steps = row_steps(trace.frames, 0, Pieces())
    assert [str(step) for step in steps] == [
        "", "[<mask>] [<mask>]", "a b", "~a~ b", "[<mask>] b [<mask>]", "c b d", "c b d",
    ]  # fmt: skip
    states = [[token.state for token in step.tokens] for step in steps]
    new, kept, noise, deleted = TokenState.NEW, TokenState.KEPT, TokenState.NOISE, TokenState.DELETED
    assert states[1:] == [[noise] * 2, [new] * 2, [deleted, kept], [noise, kept, noise], [new, kept, new], [kept] * 3]
    columns = {token.text: token.position for step in steps for token in step.tokens if token.text != "<mask>"}
    assert columns["c"] < columns["a"] < columns["b"] < columns["d"]  # a token keeps its column
    score = math.log(math.exp(3) / (math.exp(3) + VOCAB.size - 1))
    assert decoded.scores.item() == pytest.approx(score, rel=1e-5)
    page = render([Example("s", [], [Trajectory("m", "levenshtein", trace.legend, {}, steps, "c b d", [])])])
    assert page.count('class="token deleted"') == 1
    assert 'title="a: deleted' in page


def test_decoding_stops_and_never_exceeds_the_length(system: LevenshteinSystem) -> None:
    """With random weights that prefer many placeholders; <bos> and <eos> stay, and every row is like one alone."""
    torch.manual_seed(3)
    system.editor.insert.bias.data[3:].fill_(4.0)
    system.editor.delete.bias.data[1] = 0.3
    decoding, seen = LevenshteinDecoding("x", steps=4), []

    def observer(edit: Edit) -> None:
        seen.append(edit)

    output = system.generate(SOURCE, decoding, observer=observer)
    limit = system.editor.max_length + 2
    assert max(edit.tokens.shape[1] for edit in seen) == limit
    for edit in seen:
        assert (edit.tokens == BOS).sum(1).eq(1).all()
        assert (edit.tokens[:, 0] == BOS).all()
        sizes = (edit.tokens != PAD).sum(1)
        assert (edit.tokens.gather(1, sizes[:, None] - 1) == EOS).all()
        assert (edit.tokens == EOS).sum(1).eq(1).all()
    assert not (output.tokens == MASK).any()
    for row in range(3):
        alone = system.generate(SOURCE[row : row + 1, : 4 if row != 1 else 3], decoding)
        size = alone.tokens.shape[1]
        assert torch.equal(alone.tokens[0], output.tokens[row, :size])
        assert not (output.tokens[row, size:] != PAD).any()


def test_penalty_of_no_placeholder_gives_longer_texts(system: LevenshteinSystem) -> None:
    sizes = [
        int((system.generate(SOURCE, LevenshteinDecoding("x", 1, penalty)).tokens != PAD).sum())
        for penalty in (-100.0, 0.0, 100.0)
    ]
    assert sizes[0] == 6 <= sizes[1] <= sizes[2]
    assert sizes[2] > 6


@pytest.mark.slow
def test_overfits_32_pairs() -> None:
    generator = seeded(1)
    lengths = torch.randint(2, 6, (64,), generator=generator).tolist()
    sides = [torch.randint(5, VOCAB.size, (length,), generator=generator).tolist() for length in lengths]
    batch = batch_from(VOCAB, list(zip(sides[:32], sides[32:], strict=True)))
    torch.manual_seed(1)
    system = tiny_levenshtein(VOCAB, dim=64, max_length=6, placeholders=6)
    overfit(system, batch, steps=350, lr=4e-3)
    tokens = system.generate(batch.source, LevenshteinDecoding("x")).tokens
    width = min(tokens.shape[1], batch.target.shape[1])
    right = (tokens[:, :width] == batch.target[:, :width]).all(1) & (tokens[:, width:] == PAD).all(1)
    assert right.float().mean() >= 0.9


def test_other_uses_raise(system: LevenshteinSystem) -> None:
    with pytest.raises(UserError, match="system=levt needs decoding=levenshtein, not cmlm"):
        system.check(sampler("cmlm"))
    with pytest.raises(UserError, match="template: the Levenshtein Transformer chooses"):
        system.generate(SOURCE, LevenshteinDecoding("x"), template=SOURCE)
    with pytest.raises(UserError, match=r"decoding.steps must be at least 1"):
        LevenshteinDecoding("x", steps=0)
    with pytest.raises(UserError, match=r"system.label_smoothing must lie in \[0, 1\)"):
        LevenshteinSystem(VOCAB, system.editor, label_smoothing=1.0)
    assert system.likelihood(batch_from(VOCAB, [([5], [6])])) is None
