"""GPT-2 and GPVAE-T5 with tiny, randomly initialised models of the ``transformers`` library, saved to disk."""

from pathlib import Path

import pytest
import torch
import transformers
from torch.distributions import MultivariateNormal, kl_divergence

from rdm.data.batch import Batch
from rdm.decoding.beam import BeamSearch
from rdm.errors import UserError
from rdm.models.gaussian_prior import JITTER, covariance, divergence
from rdm.models.int8 import in_int8
from rdm.models.pretrained import GPT2, GPVAET5
from rdm.systems.pretrained import GPT2System, GPVAESystem, PretrainedSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, overfit, sampler
from tests.decoding.helpers import seeded

VOCAB = Vocab(size=24)
PAIRS = [([5 + i, 9 + i, 13][: 1 + i % 3], [20 - i, 12 + i, 7, 8][: 2 + i % 3]) for i in range(8)]
BATCH = batch_from(VOCAB, PAIRS)


def gpt2(weights: str | None = None, vocab: Vocab = VOCAB) -> GPT2System:
    torch.manual_seed(0)
    return GPT2System(vocab, GPT2(vocab, 32, layers=2, heads=2, max_length=6, positions=20, dropout=0.0), weights)


def gpvae(weights: str | None = None) -> GPVAESystem:
    torch.manual_seed(0)
    # A narrow prior: with the default, whose standard deviation is 22, so small a network needs far more steps.
    network = GPVAET5(VOCAB, 32, 64, layers=1, heads=2, max_length=6, dropout=0.0, variance=1.0)
    return GPVAESystem(VOCAB, network, weights)


SYSTEMS = {"gpt2": gpt2, "gpvae_t5": gpvae}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> PretrainedSystem:
    return SYSTEMS[request.param]().eval()


def test_likelihood_of_gpt2_is_that_of_the_library() -> None:
    """``source <bos> target <eos>``, one row at a time, without padding; positions are counted from 0."""
    system = gpt2().eval()
    nats = system.likelihood(BATCH).nats
    for row, (source, target) in enumerate(PAIRS):
        ids = torch.tensor([[*source, VOCAB.bos, *target, VOCAB.eos]])
        with torch.no_grad():
            logits = system.decoder.model(input_ids=ids).logits[0].double()
        logits[:, [VOCAB.pad, VOCAB.mask, VOCAB.bos]] = float("-inf")
        log_probs = logits.log_softmax(-1)
        first = len(source)
        total = -sum(float(log_probs[first + n, ids[0, first + n + 1]]) for n in range(len(target) + 1))
        assert nats[row].item() == pytest.approx(total, rel=1e-4)


def test_cached_steps_equal_one_pass(system: PretrainedSystem) -> None:
    """Also after rows have been repeated and dropped, as beam search does."""
    with torch.inference_mode():
        memory = system.decoder.encode(BATCH.source)
        everywhere = torch.ones(8, 3, dtype=torch.bool)
        whole = system.decoder(BATCH.target[:, :3], memory, everywhere).view(8, 3, -1)
        write = system.decoder.continuation(memory)
        torch.testing.assert_close(write(BATCH.target[:, 0]), whole[:, 0], rtol=1e-4, atol=1e-4)
        rows = torch.tensor([1, 1, 4, 6])
        write.select(rows.unique(), rows)
        torch.testing.assert_close(write(BATCH.target[rows, 1]), whole[rows, 1], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(write(BATCH.target[rows, 2]), whole[rows, 2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", pytest.param("gpvae_t5", marks=pytest.mark.slow)])
def test_learns_32_pairs_by_heart(name: str) -> None:
    """Decoded greedily, by beam search, and in int8."""
    system = SYSTEMS[name]()
    generator = seeded(1)
    lengths = torch.randint(2, 6, (64,), generator=generator).tolist()
    sides = [torch.randint(5, VOCAB.size, (length,), generator=generator).tolist() for length in lengths]
    batch = batch_from(VOCAB, list(zip(sides[:32], sides[32:], strict=True)))
    overfit(system.train(), batch, steps=250 if name == "gpt2" else 400, lr=5e-3)
    for each, decoding in [(system, BeamSearch("greedy", 1)), (system, BeamSearch("beam", 3))]:
        assert share_right(each, batch, decoding) >= 0.9
    assert share_right(in_int8(system), batch, BeamSearch("greedy", 1)) >= 0.8


def share_right(system: PretrainedSystem, batch: Batch, decoding: BeamSearch) -> float:
    tokens = system.generate(batch.source, decoding).tokens
    return float((tokens[:, : batch.target.shape[1]] == batch.target).all(1).float().mean())


def test_loss_is_on_the_target_only() -> None:
    system = gpt2().eval()
    (term,) = system.loss(BATCH)
    likelihood = system.likelihood(BATCH)
    assert term.total.item() == pytest.approx(likelihood.nats.sum().item(), rel=1e-5)
    assert (term.unit, likelihood.kind) == ("next", "exact")
    assert int(system.counts(BATCH)["next"]) == int(likelihood.tokens.sum())


def test_terms_of_gpvae() -> None:
    system = gpvae().eval()
    entropy, kl = system.loss(BATCH, seeded(1))
    memory, nats = system.decoder.sample(BATCH.source, seeded(1))
    assert entropy.total.item() == pytest.approx(system.target_nats(BATCH.target, memory).sum().item(), rel=1e-4)
    sizes = (BATCH.source != VOCAB.pad).sum(1) * 32
    assert kl.total.item() == pytest.approx((nats / sizes).sum().item(), rel=1e-5)
    bound = system.likelihood(BATCH, draws=2, generator=seeded(2))
    assert bound.kind == "bound"
    assert (bound.nats > nats).all()
    sum(term.total for term in system.loss(BATCH, seeded())).backward()  # type: ignore[union-attr]
    assert all(parameter.grad is not None for parameter in system.parameters())


def test_prior_against_a_dense_multivariate_normal() -> None:
    """With overlapping states, so that the covariance is far from diagonal; padding contributes nothing."""
    generator = seeded(4)
    states = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)
    states[0, 1] = states[0, 0]  # equal states
    mean, log_variance, prior = torch.randn(3, 3, 5, 4, generator=generator, dtype=torch.float64).unbind(0)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 4 + [False]])
    kernel = covariance(states, mask, variance=3.0, length_scale=1.5)
    nats = divergence(mean, log_variance, prior, kernel, mask)
    for row in range(3):
        size, total = int(mask[row].sum()), 0.0
        dense = torch.zeros(size, size, dtype=torch.float64)
        for i in range(size):
            for j in range(size):
                distance = float((states[row, i] - states[row, j]).square().sum())
                dense[i, j] = 3.0 * (torch.exp(torch.tensor(-distance / (2 * 1.5**2))) + JITTER * (i == j))
        torch.testing.assert_close(kernel[row, :size, :size], dense)
        assert dense.fill_diagonal_(0).max() > 0.1
        for d in range(4):
            q = MultivariateNormal(mean[row, :size, d], log_variance[row, :size, d].exp().diag())
            p = MultivariateNormal(prior[row, :size, d], kernel[row, :size, :size])
            total += float(kl_divergence(q, p))
        assert nats[row].item() == pytest.approx(total, rel=1e-8)


def test_weights_are_taken_over_by_id(tmp_path: Path) -> None:
    """From a folder, for a vocabulary with more special symbols than the embedding has rows."""
    config = transformers.GPT2Config(vocab_size=21, n_embd=32, n_layer=2, n_head=2, n_positions=20)
    saved = transformers.GPT2LMHeadModel(config)
    saved.save_pretrained(tmp_path)
    system = gpt2(str(tmp_path))
    before = system.decoder.model.transformer.h[0].attn.c_attn.weight.clone()
    assert not torch.equal(before, saved.transformer.h[0].attn.c_attn.weight)
    system.load_pretrained()
    assert torch.equal(system.decoder.model.transformer.wte.weight[:21], saved.transformer.wte.weight)
    assert len(system.decoder.model.transformer.wte.weight) == VOCAB.size
    assert system.decoder.model.lm_head.weight is system.decoder.model.transformer.wte.weight
    assert torch.equal(
        system.decoder.model.transformer.h[0].attn.c_attn.weight, saved.transformer.h[0].attn.c_attn.weight
    )


def test_weights_of_t5(tmp_path: Path) -> None:
    """The parameters of the latent variable are not in the file and keep their initial values."""
    network = gpvae().decoder
    torch.manual_seed(9)
    saved = transformers.T5ForConditionalGeneration(network.model.config)
    saved.save_pretrained(tmp_path)
    system = gpvae(str(tmp_path))
    system.load_pretrained()
    assert torch.equal(system.decoder.model.shared.weight, saved.shared.weight)
    assert torch.equal(system.decoder.mean.weight, network.mean.weight)


def test_wrong_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"system.weights: cannot read .*nowhere"):
        gpt2(str(tmp_path / "nowhere")).load_pretrained()
    config = transformers.GPT2Config(vocab_size=24, n_embd=16, n_layer=1, n_head=2, n_positions=20)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="is not a model of the size of model="):
        gpt2(str(tmp_path)).load_pretrained()
    with pytest.raises(UserError, match=r"has 24 ids, the tokenizer 400: use its own tokenizer"):
        gpt2(str(tmp_path), Vocab(size=400)).load_pretrained()
    with pytest.raises(UserError, match=r"model.positions=10 is less than the 14"):
        GPT2(VOCAB, 32, layers=1, heads=2, max_length=6, positions=10)


def test_other_decodings_raise(system: PretrainedSystem) -> None:
    with pytest.raises(UserError, match="does not fit an autoregressive model"):
        system.check(sampler("cmlm"))
