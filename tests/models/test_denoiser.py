"""The seq2seq denoiser: shapes, padding, shared memories, barred ids, size."""

import pytest
import torch

from rdm.models.denoiser import Seq2SeqDenoiser
from rdm.models.encoder_decoder import EncoderDecoder
from rdm.models.layers import TimeEmbedding
from rdm.vocab import Vocab
from tests.builders import tiny_denoiser
from tests.masks import Masks

VOCAB = Vocab(size=40)


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def denoiser(request: pytest.FixtureRequest) -> Seq2SeqDenoiser:
    torch.manual_seed(0)
    return tiny_denoiser(VOCAB, pre_norm=request.param).eval()


def tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(5, VOCAB.size, (rows, length), generator=torch.Generator().manual_seed(rows * 100 + length))


def test_positions_select_from_all_logits(denoiser: Seq2SeqDenoiser) -> None:
    x, t = tokens(4, 6), torch.arange(1, 5)
    memory = denoiser.encode(tokens(4, 7))
    whole = denoiser(x, t, memory)
    chosen = x % 3 == 0
    assert whole.shape == (4, 6, 40)
    torch.testing.assert_close(denoiser(x, t, memory, chosen), whole[chosen])
    torch.testing.assert_close(denoiser(x, t, memory, chosen.nonzero(as_tuple=True)), whole[chosen])


def test_padding_does_not_change_the_logits(denoiser: Seq2SeqDenoiser) -> None:
    source, x, t = tokens(3, 7), tokens(3, 6), torch.tensor([1, 5, 9])
    padding = torch.full((3, 4), VOCAB.pad)
    memory, padded = denoiser.encode(source), denoiser.encode(torch.cat([source, padding], 1))
    torch.testing.assert_close(denoiser.length_logits(memory), denoiser.length_logits(padded))
    wide = denoiser(torch.cat([x, padding], 1), t, padded)[:, :6]
    torch.testing.assert_close(denoiser(x, t, memory), wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_attention_without_mask_if_nothing_is_padded(denoiser: Seq2SeqDenoiser, training: bool) -> None:
    """The fastest attention kernels take no mask."""
    denoiser.train(training)
    source, x, t = tokens(3, 7), tokens(3, 6), torch.tensor([1, 5, 9])
    short = torch.where(torch.arange(7) < 6, source, VOCAB.pad)
    for each, masks in ((source, 0), (short, 2)):  # self-attention of the encoder and cross-attention
        with Masks() as seen:
            denoiser(x, t, denoiser.encode(each))
        assert sum(mask is not None for mask in seen.seen) == masks


def test_rows_share_a_memory(denoiser: Seq2SeqDenoiser) -> None:
    """Six rows over three sources equal six rows over six repeated sources."""
    source, x, t = tokens(3, 7), tokens(6, 5), torch.arange(1, 7)
    shared = denoiser(x, t, denoiser.encode(source))
    repeated = denoiser(x, t, denoiser.encode(source.repeat_interleave(2, 0)))
    torch.testing.assert_close(shared, repeated, rtol=1e-4, atol=1e-5)


def test_every_input_changes_the_logits(denoiser: Seq2SeqDenoiser) -> None:
    """Source, step, order and the other tokens on both sides."""
    source, x, t = tokens(1, 7), tokens(1, 6), torch.tensor([3])
    base = denoiser(x, t, denoiser.encode(source))

    def differs(other: torch.Tensor, position: int = 2) -> bool:
        return not torch.allclose(base[:, position], other[:, position], atol=1e-4)

    assert differs(denoiser(x, t, denoiser.encode(source.flip(1))))
    assert differs(denoiser(x, t + 10, denoiser.encode(source)))
    for changed in (0, 5):
        y = x.clone()
        y[0, changed] = 5 + (x[0, changed] - 4) % 30
        assert differs(denoiser(y, t, denoiser.encode(source)))


def test_barred_ids_have_no_mass(denoiser: Seq2SeqDenoiser) -> None:
    allowed = VOCAB.select(without=VOCAB.specials)
    denoiser.restrict(allowed)
    probs = denoiser(tokens(2, 5), torch.tensor([1, 2]), denoiser.encode(tokens(2, 4))).softmax(-1)
    assert (probs[..., ~allowed] == 0).all()
    assert (probs[..., allowed] > 0).all()


def test_size_of_the_paper() -> None:
    """The IWSLT model with its vocabulary has about 39M parameters."""
    with torch.device("meta"):
        denoiser = Seq2SeqDenoiser(EncoderDecoder(Vocab(size=10_152)), TimeEmbedding(512))
    assert 38e6 < sum(parameter.numel() for parameter in denoiser.parameters()) < 40e6
