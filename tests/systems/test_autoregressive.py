"""The autoregressive system: loss by hand, beam search against enumeration, batching."""

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from rdm.data.batch import Batch
from rdm.data.ragged import Ragged, frame
from rdm.decoding.beam import BeamSearch
from rdm.decoding.trace import GrowingText, row_steps
from rdm.errors import UserError
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, batch_of, sampler, tiny_autoregressive, tiny_system, toy_data

VOCAB = Vocab(size=9)
LONGEST = 3


@pytest.fixture(scope="module")
def system() -> AutoregressiveSystem:
    torch.manual_seed(0)
    return tiny_autoregressive(VOCAB, max_length=LONGEST).eval()


def pad(*rows: list[int]) -> Tensor:
    return frame(Ragged.from_rows(rows), VOCAB)


@torch.no_grad()
def log_probs(system: AutoregressiveSystem, source: Tensor, target: Tensor) -> Tensor:
    """Log-probabilities ``[V]`` at every position, without a cache."""
    return system.decoder(target[:, :-1], system.decoder.encode(source)).float().log_softmax(-1)


def test_loss_by_hand(system: AutoregressiveSystem) -> None:
    """Every token after ``<bos>`` and no padding: 0.9 on the token, 0.1 spread over all predictable ids."""
    source, target = pad([5, 6], [7]), pad([5, 6, 7], [8])
    ids = [VOCAB.eos, VOCAB.unk, 5, 6, 7, 8]
    answers, expected = log_probs(system, source, target), 0.0
    for b, length in enumerate((4, 2)):
        for n in range(length):
            smooth = sum(float(answers[b, n, i]) for i in ids) / len(ids)
            expected -= 0.9 * float(answers[b, n, target[b, n + 1]]) + 0.1 * smooth
    (term,) = system.loss(Batch(source, target, torch.arange(2)))
    assert term.total.item() == pytest.approx(expected, rel=1e-5)


def test_loss_is_a_mean_over_the_predicted_tokens(system: AutoregressiveSystem) -> None:
    """``<bos>`` is not predicted: without label smoothing the mean is that of the likelihood."""
    exact = AutoregressiveSystem(VOCAB, system.decoder, label_smoothing=0.0)
    batch = batch_from(VOCAB, [([5, 6], [5, 6, 7]), ([7], [8])])
    (term,), likelihood = exact.loss(batch), exact.likelihood(batch)
    mean = likelihood.nats.sum() / likelihood.tokens.sum()
    assert (term.total / exact.counts(batch)[term.unit]).item() == pytest.approx(mean.item(), rel=1e-5)


def test_likelihood_is_exact(system: AutoregressiveSystem) -> None:
    """The chain rule, token by token, with the end of the text and without padding."""
    source, target = pad([5, 6], [7]), pad([5, 6, 7], [8])
    found = system.likelihood(Batch(source, target, torch.arange(2)))
    chain = log_probs(system, source, target)
    texts = [[5, 6, 7, VOCAB.eos], [8, VOCAB.eos]]
    by_hand = [
        -sum(chain[row, place, token].item() for place, token in enumerate(text)) for row, text in enumerate(texts)
    ]
    assert found.kind == "exact"
    assert found.nats.tolist() == pytest.approx(by_hand, abs=1e-5)
    assert found.tokens.tolist() == [4, 2]


def test_padding_changes_neither_loss_nor_gradient() -> None:
    data = toy_data(train=12)
    torch.manual_seed(0)
    system, batch = tiny_autoregressive(data.vocab), batch_of(data, list(range(12)))

    def gradients(padding: int) -> tuple[Tensor, list[Tensor]]:
        source, target = (
            torch.nn.functional.pad(x, (0, padding), value=data.vocab.pad) for x in (batch.source, batch.target)
        )
        (term,) = system.loss(Batch(source, target, batch.ids))
        return term.total.detach(), list(torch.autograd.grad(term.total, list(system.parameters())))

    (loss, first), (wide_loss, second) = gradients(0), gradients(4)
    torch.testing.assert_close(loss, wide_loss, rtol=1e-5, atol=0)
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_wide_beam_is_exhaustive_search(system: AutoregressiveSystem, penalty: float) -> None:
    """The best of all texts of up to three tokens, each scored without beam search."""
    sources = pad([5, 6, 7], [8], [6, 5])
    found = system.generate(sources, BeamSearch("beam", 200, penalty))
    ids = [VOCAB.unk, 5, 6, 7, 8]
    for source, tokens, score in zip(sources, found.tokens, found.scores, strict=True):
        options = []
        for length in range(LONGEST + 1):
            target = torch.tensor([[VOCAB.bos, *text, VOCAB.eos] for text in product(ids, repeat=length)])
            answers = log_probs(system, source[None].expand(len(target), -1), target)
            totals = answers.gather(2, target[:, 1:, None]).sum((1, 2)) / (length + 1) ** penalty
            options += zip(totals.tolist(), target.tolist(), strict=True)
        best, text = max(options)
        assert tokens[: len(text)].tolist() == text
        assert (tokens[len(text) :] == VOCAB.pad).all()
        assert float(score) == pytest.approx(best, abs=1e-4)


def test_greedy_without_a_cache(system: AutoregressiveSystem) -> None:
    sources = pad([5, 6, 7], [8], [6, 5], [7, 7])
    found = system.generate(sources, BeamSearch("greedy", 1)).tokens
    for source, tokens in zip(sources, found, strict=True):
        text = torch.tensor([[VOCAB.bos]])
        while text[0, -1] != VOCAB.eos:
            logits = system.decoder(text, system.decoder.encode(source[None]))[:, -1]
            new = logits.argmax(-1) if text.shape[1] <= LONGEST else torch.tensor([VOCAB.eos])
            text = torch.cat([text, new[:, None]], 1)
        assert tokens[tokens != VOCAB.pad].tolist() == text[0].tolist()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_decoding_does_not_depend_on_the_batch(beam_size: int) -> None:
    """Other sources in the batch and their padding do not change the result."""
    data = toy_data(train=16)
    torch.manual_seed(2)
    system, batch = tiny_autoregressive(data.vocab).eval(), batch_of(data, list(range(16)))
    together = system.generate(batch.source, BeamSearch("beam", beam_size))
    assert (batch.source == data.vocab.pad).any()
    for source, tokens, score in zip(batch.source, together.tokens, together.scores, strict=True):
        alone = system.generate(source[source != data.vocab.pad][None], BeamSearch("beam", beam_size))
        assert torch.equal(alone.tokens[0], tokens)
        torch.testing.assert_close(alone.scores[0], score, rtol=1e-4, atol=1e-5)


def test_candidates_are_the_n_best_texts() -> None:
    """Sorted by score, all different, the returned one first; greedy search has no candidates."""
    data = toy_data(train=16)
    torch.manual_seed(2)
    system, batch = tiny_autoregressive(data.vocab).eval(), batch_of(data, list(range(4)))
    best = system.generate(batch.source, BeamSearch("beam", 4))
    assert best.candidates is not None
    assert best.candidates.tokens.shape[:2] == (4, 4)
    assert best.candidates.chosen.tolist() == [0, 0, 0, 0]
    assert torch.equal(best.candidates.tokens[:, 0], best.tokens)
    assert torch.equal(best.candidates.scores[:, 0], best.scores)
    assert (best.candidates.scores[:, :-1] >= best.candidates.scores[:, 1:]).all()
    assert all(len(set(map(tuple, texts))) == 4 for texts in best.candidates.tokens.tolist())
    assert system.generate(batch.source, BeamSearch("greedy", 1)).candidates is None


def test_trace_of_greedy_decoding() -> None:
    data = toy_data(train=16)
    torch.manual_seed(0)
    system, trace = tiny_autoregressive(data.vocab).eval(), GrowingText()
    best = system.generate(batch_of(data, [0, 1]).source, BeamSearch("greedy", 1), observer=trace)
    shown = [str(step) for step in row_steps(trace.frames, int(best.rows[1]), data.codec.tokenizer)]
    assert shown[0] == ""
    assert shown[-1] == data.codec.tokenizer.decode(best.tokens.tolist())[1]
    for before, after in pairwise(shown):
        assert after.startswith(before)


def test_other_decodings_raise(system: AutoregressiveSystem) -> None:
    system.check(BeamSearch("beam"))
    with pytest.raises(
        UserError, match="decoding=rdm_absorbing does not fit an autoregressive model; use decoding=beam"
    ):
        system.check(sampler())
    with pytest.raises(UserError, match="decoding=beam is not for diffusion over tokens"):
        tiny_system(VOCAB).check(BeamSearch("beam"))


def test_template_raises(system: AutoregressiveSystem) -> None:
    with pytest.raises(UserError, match="template: an autoregressive model cannot fill blanks"):
        system.generate(pad([5]), BeamSearch("beam"), template=pad([VOCAB.mask, 5]))
