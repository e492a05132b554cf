"""The autoregressive language model: likelihood and samples against enumeration, prompts."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rdm.decoding.left_to_right import LeftToRight
from rdm.errors import UserError
from rdm.systems.ar_lm import AutoregressiveLanguageModel
from rdm.systems.continuation import truncate
from rdm.vocab import Vocab
from tests.builders import overfit, sampler
from tests.decoding.helpers import p_value
from tests.language_models import packed, tiny_ar_lm, window_batch

SMALL = Vocab(size=8)  # three ordinary ids
WRITABLE = [3, 4, 5, 6, 7]  # <eos>, <unk> and the ordinary ones


@pytest.fixture
def system() -> AutoregressiveLanguageModel:
    return tiny_ar_lm(SMALL).eval()


def every(ids: list[int], length: int) -> Tensor:
    return torch.tensor(list(product(ids, repeat=length)))


@torch.no_grad()
def test_likelihoods_sum_to_one(system: AutoregressiveLanguageModel) -> None:
    """Over all sequences of a length; sequences with an id that never occurs in text have probability 0."""
    sequences = every([1, 2, *WRITABLE], 3)
    probs = system.log_likelihood(sequences).double().exp()
    writable = torch.isin(sequences, torch.tensor(WRITABLE)).all(1)
    assert writable.sum() == 5**3
    torch.testing.assert_close(probs.sum(), torch.tensor(1.0).double(), rtol=1e-5, atol=0)
    assert (probs[~writable] == 0).all()
    assert probs[writable].min() > 0
    assert probs.max() > 2 * probs[writable].mean(), "a uniform model would pass the checks above too"


@torch.no_grad()
def test_likelihood_conditioned_on_a_prefix(system: AutoregressiveLanguageModel) -> None:
    """``p(x) = p(prefix) p(rest | prefix)``, and the second factor sums to one over all rests."""
    rest = every(WRITABLE, 2)
    prefix = torch.tensor([[6, 3]]).expand(len(rest), -1)
    rows = torch.cat([prefix, rest], 1)
    conditional = system.log_likelihood(rows, prefix=2)
    torch.testing.assert_close(conditional.double().exp().sum(), torch.tensor(1.0).double(), rtol=1e-5, atol=0)
    torch.testing.assert_close(system.log_likelihood(rows), system.log_likelihood(prefix) + conditional)


@torch.no_grad()
def test_likelihood_by_the_chain_rule(system: AutoregressiveLanguageModel) -> None:
    """Token by token, with a separate network call for each."""
    row = [6, 7, 3, 5]
    total = 0.0
    for n, token in enumerate(row):
        before = torch.tensor([row[: n + 1]])
        others = torch.cat([before[:, :-1].expand(5, -1), torch.tensor(WRITABLE)[:, None]], 1)
        conditional = system.log_likelihood(others, prefix=n).double().exp()
        torch.testing.assert_close(conditional.sum(), torch.tensor(1.0).double(), rtol=1e-5, atol=0)
        total += float(conditional[WRITABLE.index(token)].log())
    assert float(system.log_likelihood(torch.tensor([row]))) == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("prefix", [0, 2, 5])
def test_loss_is_a_mean_over_the_tokens_after_the_prefix(system: AutoregressiveLanguageModel, prefix: int) -> None:
    windows = torch.randint(3, 8, (6, 7), generator=torch.Generator().manual_seed(0))
    batch = window_batch(windows, prefix)
    (term,) = system.loss(batch)
    by_hand = []
    mask = torch.ones(7, 7, dtype=torch.bool).tril()
    for row in windows:
        states = system.network.tokens(torch.cat([torch.tensor([SMALL.bos]), row[:-1]]))[None]
        for block in system.network.blocks:
            states = block(
                states,
                system.network.rotary,
                system.network.rotary,
                partial(scaled_dot_product_attention, attn_mask=mask),
            )
        log_probs = system.network.project(states)[0].log_softmax(-1)
        by_hand += [-log_probs[n, row[n]] for n in range(prefix, 7)]
    assert term.unit == "tokens"
    count = system.counts(batch)[term.unit]
    assert count == len(by_hand)
    torch.testing.assert_close(term.total / count, torch.stack(by_hand).mean())


def test_padding_does_not_change_the_likelihood(system: AutoregressiveLanguageModel) -> None:
    rows = torch.tensor([[5, 6, 7, 3]])
    padded = torch.nn.functional.pad(rows, (0, 3), value=SMALL.pad)
    torch.testing.assert_close(system.log_likelihood(padded), system.log_likelihood(rows))


@pytest.mark.parametrize("prompt", [[], [6, 3]], ids=["empty prompt", "prompt"])
def test_samples_follow_the_likelihood(system: AutoregressiveLanguageModel, prompt: list[int]) -> None:
    """Continuations of two tokens, cut at ``<eos>``, against their enumerated probabilities."""
    source = torch.tensor(prompt, dtype=torch.long).expand(40_000, -1)
    decoding = LeftToRight("test", max_tokens=2, temperature=1.0, top_p=1.0)
    drawn = system.generate(source, decoding, torch.Generator().manual_seed(0)).tokens
    rest = every(WRITABLE, 2)
    with torch.no_grad():
        probs = system.log_likelihood(torch.cat([source[: len(rest)], rest], 1), prefix=len(prompt)).double().exp()
    expected = np.zeros((8, 8))
    for (first, second), prob in zip(rest.tolist(), probs.tolist(), strict=True):
        first, second = (0, 0) if first == SMALL.eos else (first, 0 if second == SMALL.eos else second)
        expected[first, second] += prob
    assert p_value(drawn[:, 0] * 8 + drawn[:, 1], expected) > 1e-3


def test_greedy_continuation_is_the_argmax_without_a_cache(system: AutoregressiveLanguageModel) -> None:
    source = torch.tensor([[5, 6, 7], [7, 6, 5], [4, 4, 6]])
    written = system.generate(source, LeftToRight("test", max_tokens=6, temperature=0.0)).tokens
    assert written.shape == (3, 6)
    for row, prompt in zip(written.tolist(), source.tolist(), strict=True):
        for token in row:
            others = torch.tensor([[*prompt, other] for other in WRITABLE])
            best = WRITABLE[int(system.log_likelihood(others, prefix=len(prompt)).argmax())]
            if best == SMALL.eos:
                assert token == SMALL.pad
                break
            assert token == best
            prompt.append(token)


def test_length_of_a_continuation(system: AutoregressiveLanguageModel) -> None:
    """``max_tokens``, or as many as fit; the prompt is not repeated, and only padding follows ``<eos>``."""
    generator = torch.Generator().manual_seed(0)
    for prefix, max_tokens, length in [(4, 5, 5), (4, 40, 12), (15, 40, 1), (0, 16, 16)]:
        source = torch.full((64, prefix), 6)
        hypotheses = system.generate(source, LeftToRight("test", max_tokens, top_p=1.0), generator)
        tokens = hypotheses.tokens
        assert tokens.shape == (64, length)
        assert not torch.isin(tokens, torch.tensor([SMALL.mask, SMALL.bos, SMALL.eos])).any()
        ended = (tokens == SMALL.pad).cumsum(1) > 0
        assert (tokens[ended] == SMALL.pad).all()
        assert hypotheses.rows.tolist() == list(range(64))
        assert hypotheses.scores.isfinite().all()


def test_generation_is_reproducible(system: AutoregressiveLanguageModel) -> None:
    source, decoding = torch.full((8, 3), 6), LeftToRight("test", 10)
    first, again, other = (
        system.generate(source, decoding, torch.Generator().manual_seed(seed)).tokens for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_invalid_prompts_and_decodings_raise(system: AutoregressiveLanguageModel) -> None:
    with pytest.raises(UserError, match="the prompt has 16 tokens; at most 15 leave room to continue"):
        system.generate(torch.full((1, 16), 6), LeftToRight("test"))
    with pytest.raises(UserError, match="prompts that are continued together must have the same length"):
        system.generate(torch.tensor([[6, 6], [6, SMALL.pad]]), LeftToRight("test"))
    with pytest.raises(UserError, match="does not fit system=ar_lm; use decoding=left_to_right"):
        system.check(sampler())
    system.check(LeftToRight("test"))


def test_overfits_32_windows() -> None:
    vocab, windows = packed(32, 16)
    batch = window_batch(windows)
    system = tiny_ar_lm(vocab, dim=64)
    overfit(system, batch, steps=150, lr=5e-3)
    prompts = windows[:, :4]
    assert len({tuple(row) for row in prompts.tolist()}) == 32
    written = system.generate(prompts, LeftToRight("test", 12, temperature=0.0)).tokens
    assert (written == truncate(windows[:, 4:], vocab, 12)).double().mean() > 0.95
